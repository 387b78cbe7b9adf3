"""How much of a disk a session's files take, measured while the session goes on changing them.

Whatever is swapped meanwhile, nothing outside is looked at, and depth hides nothing: directories
are opened from their parents and never through links, and a path may be longer than the kernel
would take at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

ENTRY_BYTES: Final = 16 * 1024
"""What a file counts for at least: file systems have about one inode for so many bytes."""
_BLOCK: Final = 512  # st_blocks counts these on every file system
_HELD: Final = 64
"""Directories that are kept open on the way down; deeper trees find their way back by `..`."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def size_of(root: Path) -> int:
    """Bytes that all below a directory counts for; 0 if there is no such directory."""
    try:
        levels = [_Level.of(os.open(root, _DIRECTORY))]
    except OSError:
        return 0
    total = levels[0].size
    while levels:
        level = levels[-1]
        if level.fd < 0 or not level.below:
            _leave(levels)
            continue
        try:
            below = _Level.of(os.open(level.below.pop(), _DIRECTORY, dir_fd=level.fd))
        except OSError:  # removed, or not ours to enter as an ordinary user
            continue
        total += below.size
        levels.append(below)
        if len(levels) > _HELD:
            levels[-_HELD - 1].let_go()
    return total


@dataclass(slots=True)
class _Level:
    """A directory on the way down: its descriptor, and the directories in it still to come."""

    fd: int
    size: int
    below: list[str]
    identity: tuple[int, int]

    @classmethod
    def of(cls, fd: int) -> _Level:
        """Takes charge of an open directory."""
        size, below = 0, []
        try:
            status = os.fstat(fd)
            with os.scandir(fd) as entries:
                for entry in entries:
                    try:
                        blocks = entry.stat(follow_symlinks=False).st_blocks
                        if entry.is_dir(follow_symlinks=False):
                            below.append(entry.name)
                    except OSError:  # it was removed meanwhile
                        continue
                    size += max(blocks * _BLOCK, ENTRY_BYTES)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, size, below, (status.st_dev, status.st_ino))

    def let_go(self) -> None:
        """Closes the descriptor, if it is open."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _leave(levels: list[_Level]) -> None:
    """Goes up one level, and opens it again where it was let go of.

    Where it is another directory by now, what is left of it is for the next time.
    """
    left = levels.pop()
    if levels and levels[-1].fd < 0 and left.fd >= 0:
        parent = levels[-1]
        try:
            fd = os.open("..", _DIRECTORY, dir_fd=left.fd)
        except OSError:
            fd = -1
        if fd >= 0:
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) == parent.identity:
                parent.fd = fd
            else:
                os.close(fd)
    left.let_go()
