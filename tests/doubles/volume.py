"""A small disk of a test's own, which can be filled to the last byte and freed again."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CHUNK: Final = 64 * 1024


class Volume:
    """A mounted file system. What is under test keeps its files beside the ballast."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    @property
    def room(self) -> int:
        """Bytes that are free."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        """Leaves no room at all."""
        size = _CHUNK
        with self._ballast.open("ab", buffering=0) as ballast:
            while size:
                try:
                    ballast.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        """Gives the room back."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def volume(path: Path, mebibytes: int) -> Iterator[Volume]:
    """A file system of that size at `path`, which is made. Needs root, and fails without.

    Whatever uses it must have ended when the block ends.
    """
    path.mkdir()
    options = f"size={mebibytes}m,mode=0755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    try:
        yield Volume(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
