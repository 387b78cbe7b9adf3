"""Changing a store's directory under the sandbox's hands: nothing that is only there is lost.

What is new is made beside the directories, where no sandbox sees it, and then given its name. What
had that name comes out in the same step and is looked at then: if it is not what was known, it is
kept in the session's tool_outputs.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from services.hands.memory import tree
from services.hands.memory.exchange import exchange, into_nothing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from services.hands.backends.port import Volume

_STAGE: Final = "memory.new"
_KEPT: Final = "tool_outputs"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_TRIES: Final = 8
_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})


class TooLong(Exception):  # noqa: N818  # what a name is
    """No file can have such a name here."""


class Placing:
    """Changes one store's directory, which is open as `root`, by way of `stage`.

    Its methods answer where in the sandbox what was in the way is now, by the path where it was:
    whatever was not known. They raise `OSError`.
    """

    def __init__(self, volume: Volume, slug: str, root: int, stage: int) -> None:
        self._volume = volume
        self._slug = slug
        self.root = root
        self._stage = stage

    def put(self, path: str, data: bytes, known: frozenset[str]) -> dict[str, str]:
        """Has a file with this content at a path. `known` are digests of what may be replaced.

        Raises `TooLong`, too.
        """
        kept: dict[str, str] = {}
        with self._made(path, kept) as (directory, name):
            new = _name()
            try:
                self._write(new, data)
                self._swap(new, name, directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new, dir_fd=self._stage)
                raise
            self._look_after(new, path, known, kept)
        return kept

    def remove(self, path: str, known: frozenset[str]) -> dict[str, str]:
        """Has nothing at a path, nor directories above it that are empty then."""
        kept: dict[str, str] = {}
        try:
            with tree.parent_of(self.root, path) as (directory, name):
                out = _name()
                with suppress(FileNotFoundError):
                    os.rename(name, out, src_dir_fd=directory, dst_dir_fd=self._stage)
                    self._look_after(out, path, known, kept)
        except tree.NoMemory:
            return kept
        self._prune(path)
        return kept

    def clear(self) -> None:
        """Takes everything out of the directory, for good."""
        for name in os.listdir(self.root):  # noqa: PTH208  # a descriptor
            out = _name()
            with suppress(FileNotFoundError):
                os.rename(os.fsencode(name), out, src_dir_fd=self.root, dst_dir_fd=self._stage)
                shutil.rmtree(self._volume.root / _STAGE / os.fsdecode(out), ignore_errors=True)

    def _write(self, new: bytes, data: bytes) -> None:
        descriptor = os.open(new, _NEW, 0o600, dir_fd=self._stage)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            self._give(descriptor, 0o644)
        finally:
            os.close(descriptor)

    @contextmanager
    def _made(self, path: str, kept: dict[str, str]) -> Iterator[tuple[int, bytes]]:
        """The directory of a path, made where it is missing, and the path's last name."""
        *above, name = tree.segments(path)
        directory, place = os.dup(self.root), ""
        try:
            for one in above:
                place = f"{place}/{os.fsdecode(one)}"
                below = self._below(directory, one, place, kept)
                os.close(directory)
                directory = below
            yield directory, name
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise TooLong from error
            raise
        finally:
            os.close(directory)

    def _below(self, directory: int, name: bytes, place: str, kept: dict[str, str]) -> int:
        stage = self._stage
        for _ in range(_TRIES):
            try:
                return tree.enter(directory, name)
            except FileNotFoundError:
                new = _name()
                os.mkdir(new, 0o700, dir_fd=stage)
                made = os.open(new, tree.ENTER, dir_fd=stage)
                try:
                    self._give(made, 0o755)
                finally:
                    os.close(made)
                with suppress(FileExistsError):
                    into_nothing(new, stage, name, directory)
            except (NotADirectoryError, OSError) as error:
                if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
                    raise
                out = _name()
                with suppress(FileNotFoundError):
                    os.rename(name, out, src_dir_fd=directory, dst_dir_fd=stage)
                    self._keep(out, place, kept)
        raise OSError(errno.EBUSY, "the directory changes too quickly")

    def _swap(self, new: bytes, name: bytes, directory: int) -> None:
        """Gives what is new its name; what had it is then where that was."""
        for _ in range(_TRIES):
            with suppress(FileExistsError):
                into_nothing(new, self._stage, name, directory)
                return
            with suppress(FileNotFoundError):
                exchange(new, self._stage, name, directory)
                return
        raise OSError(errno.EBUSY, "the file changes too quickly")

    def _look_after(
        self, out: bytes, path: str, known: frozenset[str], kept: dict[str, str]
    ) -> None:
        """Deletes what came out, where it is known, and keeps it otherwise."""
        try:
            handle = os.open(out, tree.LOOK, dir_fd=self._stage)
        except FileNotFoundError:
            return
        try:
            if tree.content_of(handle)[1].sha256 in known:
                os.unlink(out, dir_fd=self._stage)
                return
        except (tree.NoMemory, tree.TooLarge, OSError):
            pass  # it is none, or cannot be read
        finally:
            os.close(handle)
        with suppress(OSError):
            os.rmdir(out, dir_fd=self._stage)  # an empty directory is nothing
            return
        self._keep(out, path, kept)

    def _keep(self, out: bytes, path: str, kept: dict[str, str]) -> None:
        """Puts something where the session finds it."""
        last = _UNSAFE.sub("_", path.rpartition("/")[2])[-80:]
        stem, dot, ending = last.rpartition(".")
        stem, ending = (stem, dot + ending) if stem else (last, "")
        name = f"memory-{self._slug[:60]}-{stem}-{secrets.token_hex(4)}{ending}"
        place = os.open(self._volume.root / _KEPT, tree.ENTER)
        try:
            into_nothing(out, self._stage, os.fsencode(name), place)
        finally:
            os.close(place)
        kept[path] = f"/mnt/session/{_KEPT}/{name}"

    def _prune(self, path: str) -> None:
        """Removes the directories above a path that are empty."""
        while path := path.rpartition("/")[0]:
            try:
                with tree.parent_of(self.root, path) as (directory, name):
                    os.rmdir(name, dir_fd=directory)
            except tree.NoMemory:
                continue
            except OSError:
                return

    def _give(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)
        if self._volume.owner is not None:
            os.fchown(descriptor, self._volume.owner, self._volume.owner)


@contextmanager
def placing(volume: Volume, slug: str) -> Iterator[Placing]:
    """A store's directory to be changed, which is made if it is not there. Raises `OSError`."""
    make(volume.root / "memory", slug, volume.owner)
    stage = volume.root / _STAGE
    stage.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(stage, tree.ENTER)
    try:
        with tree.opened(volume.root / "memory", slug) as root:
            yield Placing(volume, slug, root, descriptor)
    finally:
        os.close(descriptor)
        with suppress(OSError):  # something is left that could not be kept elsewhere
            stage.rmdir()


def make(memory: Path, slug: str, owner: int | None) -> None:
    """Makes a store's directory in a volume's, if there is none. Raises `OSError`."""
    place = memory / slug
    with suppress(FileExistsError):
        place.mkdir(mode=0o755)
    if owner is not None:  # also where a process has died before it came to this
        os.chown(place, owner, owner)


def _name() -> bytes:
    return secrets.token_hex(8).encode()
