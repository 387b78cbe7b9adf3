"""Which volume on this machine is which: a small file for each, beside the volumes."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from services.hands.domain.checkpoint import Origin

if TYPE_CHECKING:
    from pathlib import Path

_SUFFIX: Final = ".json"


class Origins:
    """The files below `directory`, by their hands' addresses. Blocking, and brief."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "origins"

    def read(self, where: str) -> Origin:
        """What the volume at an address is; nothing is known of one without a file."""
        try:
            told = json.loads((self._directory / f"{where}{_SUFFIX}").read_bytes())
            return Origin(**{name: str(told.get(name, "")) for name in Origin.__slots__})
        except (FileNotFoundError, ValueError, AttributeError):
            return Origin()

    def write(self, where: str, origin: Origin) -> None:
        """Durably, and at once or not at all. Raises `OSError`."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        unfinished = self._directory / f"{where}.new"
        with unfinished.open("wb") as file:
            file.write(json.dumps(asdict(origin)).encode())
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._directory / f"{where}{_SUFFIX}")
        self._settle()

    def move(self, where: str, to: str) -> None:
        """Gives a file another address, if it is there. Raises `OSError`."""
        with suppress(FileNotFoundError):
            (self._directory / f"{where}{_SUFFIX}").rename(self._directory / f"{to}{_SUFFIX}")
            self._settle()

    def delete(self, where: str) -> None:
        """Raises `OSError`."""
        (self._directory / f"{where}{_SUFFIX}").unlink(missing_ok=True)

    def of_session(self, session_id: str) -> list[str]:
        """The addresses of a session for which there are files."""
        found = [*self._directory.glob(f"{session_id}@*{_SUFFIX}")]
        return [session_id, *(path.name.removesuffix(_SUFFIX) for path in found)]

    def _settle(self) -> None:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
