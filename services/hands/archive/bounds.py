"""What an archive may hold, whichever way it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PARTS: Final = ("workspace", "outputs", "home", "tool_outputs")
"""The directories of a volume that are the session's own work, which archives keep."""
BROUGHT: Final = ("uploads", "skills", "memory")
"""Its directories that are filled from elsewhere, each time anew."""
FORMER: Final = ("uploads",)
"""What archives of earlier releases have, too."""
MAX_DEPTH: Final = 256
MAX_PATH: Final = 32 * 1024  # bytes
MAX_FILE: Final = 1 << 44
"""Bytes that a file may seem to have, holes included: what ext4 can hold."""
MAX_EXTENTS: Final = 8192
"""Pieces of data between the holes of one file."""
MAX_REMEMBERED: Final = 64 << 20
"""Bytes of paths that are kept in memory, of hard links above all."""
CHUNK: Final = 256 * 1024
"""Bytes that are read and written at once."""


class ArchiveRefused(Exception):  # noqa: N818  # a state of the tree or of the stream
    """The tree, or the stream, is not one that is taken; the text says why."""


@dataclass(slots=True)
class Bounds:
    """What is left of what may come: entries, and bytes of data without holes."""

    entries: int
    data: int
    remembered: int = MAX_REMEMBERED

    def take_entry(self) -> None:
        """Counts one. Raises `ArchiveRefused`."""
        self.entries -= 1
        if self.entries < 0:
            raise ArchiveRefused("it has too many files")

    def take_data(self, size: int) -> None:
        """Counts bytes of a file. Raises `ArchiveRefused`."""
        self.data -= size
        if self.data < 0:
            raise ArchiveRefused("its files are too large")

    def remember(self, path: bytes) -> None:
        """Counts a path that is kept in memory. Raises `ArchiveRefused`."""
        self.remembered -= len(path) + 100
        if self.remembered < 0:
            raise ArchiveRefused("it has too many hard links, or directories that forbid entry")
