"""Where a file has data, and where holes."""

from __future__ import annotations

import errno
import os
from typing import Final

from services.hands.archive.bounds import MAX_EXTENTS

_BLOCK: Final = 512  # st_blocks counts these on every file system


def extents(descriptor: int, status: os.stat_result) -> list[tuple[int, int]] | None:
    """Offset and length of a file's pieces of data, in order; None where it has no holes.

    Where there are too many, small holes count as data.
    """
    size = status.st_size
    if status.st_blocks * _BLOCK >= size:
        return None
    found: list[tuple[int, int]] = []
    smallest, at = 1, 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno != errno.ENXIO:  # else there is no more
                raise
            break
        if at <= start:  # it grew meanwhile
            break
        _append(found, start, at - start, smallest)
        while len(found) > MAX_EXTENTS:
            smallest *= 4
            pieces, found = found, []
            for piece in pieces:
                _append(found, *piece, smallest)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return None if found == [(0, size)] else found


def _append(found: list[tuple[int, int]], start: int, length: int, smallest: int) -> None:
    """Adds a piece, with the hole before it if that is smaller than `smallest` bytes."""
    if found and start - sum(found[-1]) < smallest:
        before = found[-1][0]
        found[-1] = (before, start + length - before)
    else:
        found.append((start, length))
