"""What is received of a skill, kept in a temporary file of bounded size until it is packed."""

from __future__ import annotations

import io
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Final

from services.registry.domain.skills.refusals import refuse, shown, too_large

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from drover.skill.v1.skill_service_pb2 import SkillPart
    from services.registry.domain.skills.limits import SkillLimits

IN_MEMORY: Final = 256 * 1024
"""Bytes of an upload, or of an archive, that need no file."""


@dataclass(slots=True)
class Received:
    """One uploaded file: where it lies in what was received."""

    path: str
    start: int
    size: int = 0
    executable: bool = False


class Upload:
    """The files of one upload, one behind the other. Its methods block: it is used off the loop."""

    def __init__(self, limits: SkillLimits) -> None:
        self.files: list[Received] = []
        self._limits = limits
        self._size = 0
        self._spool: IO[bytes] = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # closed by `with`

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._spool.close()

    def take(self, part: SkillPart) -> None:
        """Keeps one more piece. Raises INVALID_ARGUMENT, and REQUEST_TOO_LARGE."""
        if part.path:
            if len(self.files) == self._limits.entries:
                refuse(f"more than {self._limits.entries} of them", part.path)
            self.files.append(Received(part.path, self._size, executable=part.executable))
        elif not self.files:
            refuse("the first piece of a file says no path")
        file = self.files[-1]
        file.size += len(part.data)
        self._size += len(part.data)
        if self._size > self._limits.upload_bytes:
            too_large(self._limits.max_bytes, file.path)
        self._spool.write(part.data)

    @property
    def spool(self) -> IO[bytes]:
        """All bytes that were received."""
        return self._spool

    def open(self, file: Received) -> io.BufferedReader:
        """The bytes of one file, which nothing else reads meanwhile."""
        return io.BufferedReader(_Slice(self._spool, file))

    def archive(self) -> Received | None:
        """The zip archive, where that is what was uploaded. Raises INVALID_ARGUMENT."""
        if not self.files:
            refuse("there are none: upload the files of a folder, or one zip archive")
        first = self.files[0]
        if len(self.files) > 1 or ("/" in first.path and not first.path.lower().endswith(".zip")):
            return None
        with self.open(first) as file:
            if file.read(2) != b"PK":
                refuse(
                    f"{shown(first.path)} is no zip archive, and in no folder: upload one zip "
                    "archive, or the files of a folder with the folder's name in their paths"
                )
        return first


class _Slice(io.RawIOBase):
    """Part of a file that others read, too, each in its turn."""

    def __init__(self, whole: IO[bytes], part: Received) -> None:
        self._whole = whole
        self._at, self._end = part.start, part.start + part.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what is given
        self._whole.seek(self._at)
        data = self._whole.read(min(len(buffer), self._end - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
