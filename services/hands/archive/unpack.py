"""An archive as a volume: everything is made by name in a directory that is held open.

The stream is untrusted. No path of it is ever resolved: an entry's directory must be one that the
stream has just made and not left yet, so that no link of its own can lead it astray (CASES S12).
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from services.hands.archive.bounds import (
    BROUGHT,
    CHUNK,
    FORMER,
    MAX_DEPTH,
    MAX_EXTENTS,
    MAX_FILE,
    PARTS,
    ArchiveRefused,
    Bounds,
)
from services.hands.archive.header import (
    DIRECTORY,
    FILE,
    MANIFEST,
    SYMLINK,
    Header,
    Headers,
    padding,
)
from services.hands.archive.pack import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GZIP: Final = 31
_PARTS: Final = frozenset(map(os.fsencode, (*PARTS, *FORMER)))
_ENTER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINE: Final = 24  # digits of a 64-bit number, and then some
_WORKABLE: Final = 0o700
_PLAIN: Final = 0o755


class _Source:
    """The archive's bytes, as many as are asked for."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._stream = zlib.decompressobj(_GZIP)
        self._ready = b""
        self._at = 0

    def some(self, size: int) -> bytes:
        """At least one byte, at most `size`. Raises `ArchiveRefused`."""
        while self._at == len(self._ready):
            self._ready, self._at = self._more(), 0
        piece = self._ready[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def exactly(self, size: int) -> bytes:
        """Just as many bytes; they are held in memory. Raises `ArchiveRefused`."""
        piece = self.some(size)
        if len(piece) == size:
            return piece
        pieces, missing = [piece], size - len(piece)
        while missing:
            pieces.append(self.some(missing))
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def end(self) -> None:
        """Raises `ArchiveRefused` where there is more."""
        while self._at == len(self._ready) and not self._stream.eof:
            self._ready, self._at = self._more(), 0
        if self._at < len(self._ready) or self._stream.unused_data or self._read(1):
            raise ArchiveRefused("there is more behind its end")

    def _more(self) -> bytes:
        if self._stream.eof:
            raise ArchiveRefused("it ends too early")
        packed = self._stream.unconsumed_tail or self._read(CHUNK)
        if not packed:
            raise ArchiveRefused("it ends too early")
        try:
            return self._stream.decompress(packed, CHUNK)
        except zlib.error as error:
            raise ArchiveRefused("it cannot be decompressed") from error


@dataclass(slots=True)
class _Made:
    """A directory that is being filled; when it is left, it looks as its header says."""

    path: bytes
    descriptor: int
    header: Header


class Unpacker:
    """Reads one archive by `read`, which answers at most as much as it is asked for."""

    def __init__(self, read: Callable[[int], bytes], bounds: Bounds) -> None:
        self._source = _Source(read)
        self._bounds = bounds
        self._late: list[Header] = []

    def unpack(self, root: int) -> None:
        """Fills the empty directory that is open as `root`. Raises `ArchiveRefused`, `OSError`."""
        headers = Headers(self._source.exactly)
        self._manifest(headers.next())
        stack = [_Made(b"", root, Header(DIRECTORY, b""))]
        try:
            while (header := headers.next()) is not None:
                self._bounds.take_entry()
                name = self._enter(stack, header.path)
                self._entry(root, stack, name, header)
        finally:
            while len(stack) > 1:
                self._leave(stack.pop())
        self._source.end()
        for part in (*PARTS, *BROUGHT):
            with suppress(FileExistsError):
                os.mkdir(part, _PLAIN, dir_fd=root)
        for header in self._late:
            with _opened(root, header.path) as directory:
                _finish(directory, header)

    def _manifest(self, header: Header | None) -> None:
        if header is None or header.path != MANIFEST or header.size > CHUNK:
            raise ArchiveRefused("it is no checkpoint")
        text = self._source.exactly(header.size)
        self._padding(header.size)
        try:
            told = json.loads(text)
        except ValueError as error:
            raise ArchiveRefused("it is no checkpoint") from error
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            raise ArchiveRefused("it is of a format that this release does not know")

    def _enter(self, stack: list[_Made], path: bytes) -> bytes:
        """Leaves directories until the entry's own is on top; its name in there."""
        parent, _, name = path.rpartition(b"/")
        while len(stack) > 1 and stack[-1].path != parent:
            self._leave(stack.pop())
        if stack[-1].path != parent or path.startswith(b"/"):
            raise ArchiveRefused("an entry in it has no directory")
        if name in {b"", b".", b".."}:
            raise ArchiveRefused("an entry in it has no name")
        if len(stack) == 1 and name not in _PARTS:
            raise ArchiveRefused("it has an entry beside the workspace's own directories")
        return name

    def _leave(self, made: _Made) -> None:
        try:
            if made.header.mode & _WORKABLE == _WORKABLE:
                _finish(made.descriptor, made.header)
            else:  # a hard link that comes may still lead in there
                self._bounds.remember(made.path)
                self._late.append(made.header)
        finally:
            os.close(made.descriptor)

    def _entry(self, root: int, stack: list[_Made], name: bytes, header: Header) -> None:
        directory = stack[-1].descriptor
        try:
            if header.kind == DIRECTORY:
                if len(stack) > MAX_DEPTH:
                    raise ArchiveRefused("its directories are too deep")
                os.mkdir(name, _WORKABLE, dir_fd=directory)
                below = os.open(name, _ENTER, dir_fd=directory)
                stack.append(_Made(header.path, below, header))
            elif len(stack) == 1:
                raise ArchiveRefused("a directory of the workspace is none")
            elif header.kind == FILE:
                self._file(directory, name, header)
            elif header.kind == SYMLINK:
                os.symlink(header.target, name, dir_fd=directory)
                times = (header.changed, header.changed)
                os.utime(name, ns=times, dir_fd=directory, follow_symlinks=False)
            else:
                _link(root, header.target, directory, name)
        except FileExistsError as error:
            raise ArchiveRefused("it has a path twice") from error
        except (ValueError, OverflowError) as error:
            raise ArchiveRefused("it has a value that no file can have") from error

    def _file(self, directory: int, name: bytes, header: Header) -> None:
        descriptor = os.open(name, _MAKE, 0o600, dir_fd=directory)
        try:
            if header.real is None:
                self._copy(descriptor, 0, header.size)
                self._padding(header.size)
            else:
                self._sparse(descriptor, header, header.real)
            os.fchmod(descriptor, header.mode & 0o777)
            os.utime(descriptor, ns=(header.changed, header.changed))
        finally:
            os.close(descriptor)

    def _sparse(self, descriptor: int, header: Header, real: int) -> None:
        if real > MAX_FILE:
            raise ArchiveRefused("a file in it is too large")
        count, used = self._line()
        if not 0 < count <= MAX_EXTENTS + 1:
            raise ArchiveRefused("a sparse file in it has too many pieces")
        pieces, least = [], 0
        for _ in range(count):
            (start, first), (length, second) = self._line(), self._line()
            used += first + second
            if start < least or start + length > real:
                raise ArchiveRefused("a sparse file in it has impossible pieces")
            pieces.append((start, length))
            least = start + length
        fill = padding(used)
        if header.size != used + fill + sum(length for _, length in pieces):
            raise ArchiveRefused("a sparse file in it has an impossible size")
        self._padding(used)
        os.ftruncate(descriptor, real)
        for start, length in pieces:
            self._copy(descriptor, start, length)
        self._padding(header.size)

    def _line(self) -> tuple[int, int]:
        """A number on a line of its own, and how many bytes that were."""
        text = b""
        while (digit := self._source.exactly(1)) != b"\n":
            text += digit
            if not digit.isdigit() or len(text) > _MAX_LINE:
                raise ArchiveRefused("a number in it is none")
        return int(text or b"0"), len(text) + 1

    def _copy(self, descriptor: int, at: int, length: int) -> None:
        self._bounds.take_data(length)
        end = at + length
        while at < end:
            data = self._source.some(min(CHUNK, end - at))
            at += len(data)
            while data:
                data = data[os.pwrite(descriptor, data, at - len(data)) :]

    def _padding(self, size: int) -> None:
        if fill := padding(size):
            self._source.exactly(fill)


def _finish(directory: int, header: Header) -> None:
    os.fchmod(directory, header.mode)
    os.utime(directory, ns=(header.changed, header.changed))


def _link(root: int, target: bytes, directory: int, name: bytes) -> None:
    place, _, first = target.rpartition(b"/")
    if not place or first in {b"", b".", b".."}:
        raise ArchiveRefused("a hard link in it leads nowhere")
    try:
        with _opened(root, place) as source:
            os.link(first, name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArchiveRefused("a hard link in it leads nowhere") from error


@contextmanager
def _opened(root: int, path: bytes) -> Iterator[int]:
    """Opens a directory below `root`, name by name, through no link. Raises `OSError`."""
    directory = os.open(b".", _ENTER, dir_fd=root)
    try:
        for name in path.split(b"/"):
            if name in {b"", b".", b".."}:
                raise ArchiveRefused("a path in it leads nowhere")
            below = os.open(name, _ENTER, dir_fd=directory)
            os.close(directory)
            directory = below
        yield directory
    finally:
        os.close(directory)
