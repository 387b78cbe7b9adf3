"""Bodies of HTTP/1.1 messages: read by their framing, and framed anew (RFC 9112 §6, §7)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from services.vault_proxy.proxy.parse import malformed
from services.vault_proxy.proxy.wire import LostError

if TYPE_CHECKING:
    from services.vault_proxy.proxy.wire import Wire

PIECE: Final = 128 * 1024
"""Bytes that are passed on at once, at most."""
LAST_CHUNK: Final = b"0\r\n\r\n"
_MAX_CHUNK_LINE: Final = 4096
_MAX_TRAILER: Final = 16 * 1024
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})")
# What servers may write behind a chunk's size; it means nothing to this proxy (RFC 9112 §7.1.1).
_LAX_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")


class Incoming(Protocol):
    """A body that is read."""

    async def read(self, until: float) -> bytes:
        """Some of it, empty at its end.

        Raises `LostError` where it was cut short, `LateError` and, for bad framing, `RefusedError`.
        """
        ...

    @property
    def done(self) -> bool:
        """Whether all was read: the connection may carry another message."""
        ...


class Nothing:
    """No body."""

    done = True

    async def read(self, until: float) -> bytes:  # noqa: ARG002
        """Empty."""
        return b""


class Counted:
    """A body of so many bytes."""

    def __init__(self, wire: Wire, length: int) -> None:
        self._wire = wire
        self._left = length

    @property
    def done(self) -> bool:
        """Whether all was read."""
        return self._left == 0

    async def read(self, until: float) -> bytes:
        """As the port says."""
        if self._left == 0:
            return b""
        piece = await self._wire.some(min(PIECE, self._left), until)
        if not piece:
            raise LostError
        self._left -= len(piece)
        return piece


class UntilEnd:
    """An answer that ends with its connection."""

    done = False

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def read(self, until: float) -> bytes:
        """As the port says."""
        return await self._wire.some(PIECE, until)


class Chunked:
    """A body in chunks. A request's are read strictly (case E7); a server's may have extensions.

    Trailer fields are refused of a request; those of an answer are left out (RFC 9112 §7.1.2).
    """

    def __init__(self, wire: Wire, *, strict: bool) -> None:
        self._wire = wire
        self._strict = strict
        self._left = 0
        self._ending = self._in_trailer = False
        self._trailer_left = _MAX_TRAILER
        self.done = False

    async def read(self, until: float) -> bytes:
        """As the port says. After `LateError` it may be called again."""
        if self.done:
            return b""
        if self._left == 0:
            if self._ending:
                await self._end_of_chunk(until)
                self._ending = False
            if not self._in_trailer:
                self._left = await self._size(until)
                self._in_trailer = self._left == 0
            if self._in_trailer:
                await self._trailer(until)
                self.done = True
                return b""
        piece = await self._wire.some(min(PIECE, self._left), until)
        if not piece:
            raise LostError
        self._left -= len(piece)
        self._ending = self._left == 0
        return piece

    async def _size(self, until: float) -> int:
        line = await self._line(until, _MAX_CHUNK_LINE)
        found = (_CHUNK_LINE if self._strict else _LAX_CHUNK_LINE).fullmatch(line)
        if found is None:
            raise malformed("a chunk does not begin with its size alone")
        return int(found[1], 16)

    async def _end_of_chunk(self, until: float) -> None:
        while len(self._wire.waiting) < len(b"\r\n"):
            if not await self._wire.more(until):
                raise LostError
        if self._wire.take(2) != b"\r\n":
            raise malformed("a chunk is not as long as it says")

    async def _trailer(self, until: float) -> None:
        while line := await self._line(until, self._trailer_left):
            if self._strict:
                raise malformed("fields behind a chunked body are not passed on")
            self._trailer_left -= len(line)

    async def _line(self, until: float, most: int) -> bytes:
        """A line without its end."""
        waiting, seen = self._wire.waiting, 0
        while (end := waiting.find(b"\n", seen, most)) < 0:
            if len(waiting) >= most:
                raise malformed("a line of a chunked body is too long")
            seen = len(waiting)
            if not await self._wire.more(until):
                raise LostError
        line = self._wire.take(end + 1)
        if line[-2:] != b"\r\n" or b"\r" in line[:-2]:
            raise malformed("a line of a chunked body does not end in CR LF")
        return line[:-2]


def chunk(piece: bytes) -> bytes:
    """A piece, which must not be empty, as a chunk."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
