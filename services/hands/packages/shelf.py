"""Where installed packages lie on the host.

DIR/hands/packages/<key>/ is mounted read-only into sandboxes; in it are build-<id>/, which one
sandbox has filled and none can write to any more, build-<id>.json with what could not be installed,
and `current`, a link to the one that counts. A link is replaced in one step: what a process that
died has left of a build is found by no sandbox, and deleted by the next process.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from services.hands.domain.packages import Failure

_BUILD: Final = "build-"
_CURRENT: Final = "current"


class Shelf:
    """The directories below `directory`. Its methods wait for the disk: call them in a thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute() / "packages"

    def start(self) -> None:
        """Deletes what a dead process left of its builds. No sandbox may run any more."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o711)  # to pass through, not to look into
        for place in self.directory.iterdir():
            self._clear(place, {self._target(place)})

    def place(self, key: str) -> Path:
        """The directory that sandboxes are to have mounted, used as of now. Raises `OSError`."""
        place = self.directory / key
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
        os.utime(place)
        return place

    def begin(self, key: str, build: str, owner: int | None) -> Path:
        """An empty directory to install into, which is `owner`'s. Raises `OSError`."""
        directory = self.place(key) / f"{_BUILD}{build}"
        directory.mkdir(mode=0o755)
        if owner is not None:
            os.chown(directory, owner, owner)
        return directory

    def publish(self, key: str, built: Path, failures: tuple[Failure, ...]) -> None:
        """Has every sandbox find it from now on. Nothing may write to it any more.

        The one before it stays for the programs that have begun with it. Raises `OSError`.
        """
        place = self.directory / key
        before = self._target(place)
        rows = [[one.manager, one.package, one.words] for one in failures]
        record = place / f"{built.name}.json"
        record.write_text(json.dumps(rows), encoding="utf-8")
        link = place / f"{_CURRENT}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(built.name)
        for path in (record, place):  # the names before the link that leads to them
            _sync(path)
        link.rename(place / _CURRENT)
        _sync(place)
        self._clear(place, {before, built.name})

    def failures(self, key: str) -> tuple[Failure, ...] | None:
        """What is missing of what is there; `None` where nothing is."""
        place = self.directory / key
        target = self._target(place)
        if not target:
            return None
        try:
            rows = json.loads((place / f"{target}.json").read_text(encoding="utf-8"))
            return tuple(Failure(*row) for row in rows)
        except (OSError, ValueError, TypeError):
            return None

    def discard(self, built: Path) -> None:
        """Deletes a build that came to nothing."""
        _delete(built)

    def keys(self) -> set[str]:
        """All that there are."""
        return {place.name for place in self.directory.iterdir()}

    def prune(self, keep: set[str], seconds: float) -> list[str]:
        """Deletes what no sandbox was started with for so long, but for `keep`, which are used."""
        since, gone = time.time() - seconds, []
        for place in self.directory.iterdir():
            if place.name in keep:
                with suppress(OSError):
                    os.utime(place)
            elif place.stat().st_mtime < since:
                (place / _CURRENT).unlink(missing_ok=True)
                _delete(place)
                gone.append(place.name)
        return gone

    def _target(self, place: Path) -> str:
        try:
            return os.readlink(place / _CURRENT)  # noqa: PTH115  # a name, not a path
        except OSError:
            return ""

    def _clear(self, place: Path, keep: set[str]) -> None:
        """Deletes the builds that are not to be kept."""
        for path in place.iterdir():
            if path.name != _CURRENT and path.name.removesuffix(".json") not in keep:
                _delete(path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _delete(path: Path) -> None:
    """Deletes a tree or a file, whatever its modes are; follows no link."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    shutil.rmtree(path, ignore_errors=True)
    for directory, below, _ in os.walk(path):
        for one in (Path(directory, name) for name in below):
            if not one.is_symlink():
                one.chmod(stat.S_IRWXU)  # before the walk enters it
    shutil.rmtree(path, ignore_errors=True)
