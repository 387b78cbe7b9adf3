"""A volume as an archive: tar, compressed as it goes, from a tree that may change meanwhile."""

from __future__ import annotations

import json
import os
import stat
import zlib
from typing import TYPE_CHECKING, Final

from services.hands.archive.bounds import CHUNK, MAX_FILE, ArchiveRefused, Bounds
from services.hands.archive.extents import extents
from services.hands.archive.header import (
    DIRECTORY,
    END,
    FILE,
    HARD_LINK,
    MANIFEST,
    SYMLINK,
    Header,
    encode,
    padding,
)
from services.hands.archive.tree import Entry, LeftOut, check_whole, walk

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT: Final = 1
_LEVEL: Final = 1
"""Of compression: higher ones cost several times the processor for a tenth of the size."""
_GZIP: Final = 31
_NOTHING: Final = bytes(CHUNK)


class Packer:
    """Writes one archive by `write`, which takes all that it is given."""

    def __init__(self, write: Callable[[bytes], object], bounds: Bounds) -> None:
        self._write = write
        self._bounds = bounds
        self._stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._linked: dict[tuple[int, int], bytes] = {}
        self.left_out = LeftOut()

    def pack(self, root: int) -> None:
        """Writes the volume whose directory is open as `root`. Raises `ArchiveRefused`, `OSError`.

        What is written is a whole archive of what was found, file by file: one that shrinks while
        it is read ends in zeros, of one that grows there is what it had.
        """
        manifest = json.dumps({"format": FORMAT}).encode()
        self._put(encode(Header(FILE, MANIFEST, len(manifest))))
        self._put(manifest + bytes(padding(len(manifest))))
        for entry in walk(root, self._bounds, self.left_out):
            self._entry(entry)
        check_whole(root)  # now, lest what was left of it count as the newest
        self._put(END)
        self._write(self._stream.flush())

    def _entry(self, entry: Entry) -> None:
        mode, changed = entry.status.st_mode, entry.status.st_mtime_ns
        if stat.S_ISDIR(mode):
            self._put(encode(Header(DIRECTORY, entry.path, 0, mode, changed)))
        elif stat.S_ISLNK(mode):
            target = os.readlink(b"", dir_fd=entry.descriptor)  # of what is open
            self._put(encode(Header(SYMLINK, entry.path, 0, mode, changed, target)))
        elif (first := self._seen(entry)) is not None:
            self._put(encode(Header(HARD_LINK, entry.path, 0, mode, changed, first)))
        else:
            self._file(entry)

    def _seen(self, entry: Entry) -> bytes | None:
        """The path under which a file is in the archive already."""
        if entry.status.st_nlink == 1:
            return None
        file = entry.status.st_dev, entry.status.st_ino
        first = self._linked.get(file)
        if first is None:
            self._bounds.remember(entry.path)
            self._linked[file] = entry.path
        return first

    def _file(self, entry: Entry) -> None:
        status = entry.status
        if status.st_size > MAX_FILE:
            raise ArchiveRefused("a file in it is too large")
        given = status.st_mode, status.st_mtime_ns
        pieces = extents(entry.descriptor, status)
        if pieces is None:
            self._bounds.take_data(status.st_size)
            self._put(encode(Header(FILE, entry.path, status.st_size, *given)))
            self._data(entry.descriptor, 0, status.st_size)
            self._put(bytes(padding(status.st_size)))
            return
        places = [*pieces, (status.st_size, 0)]
        listed = "".join(f"{start}\n{length}\n" for start, length in places)
        text = f"{len(places)}\n{listed}".encode()
        text += bytes(padding(len(text)))
        data = sum(length for _, length in pieces)
        self._bounds.take_data(data)
        header = Header(FILE, entry.path, len(text) + data, *given, real=status.st_size)
        self._put(encode(header) + text)
        for start, length in pieces:
            self._data(entry.descriptor, start, length)
        self._put(bytes(padding(data)))

    def _data(self, descriptor: int, at: int, length: int) -> None:
        end = at + length
        while at < end:
            chunk = os.pread(descriptor, min(CHUNK, end - at), at)
            if not chunk:  # it has shrunk
                chunk = _NOTHING[: end - at]
            self._put(chunk)
            at += len(chunk)

    def _put(self, data: bytes) -> None:
        if squeezed := self._stream.compress(data):
            self._write(squeezed)
