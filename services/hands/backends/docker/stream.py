"""A container's multiplexed output, taken apart (Engine API, "Attach to a container").

Before each piece come eight bytes: which stream it is of, three zeros, and its length.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

_HEADER: Final = 8
_ERROR: Final = 2
_BUFFER: Final = 256 * 1024


class Demultiplexer(asyncio.StreamReaderProtocol):
    """Feeds a reader what the container writes to its standard output.

    Until that has anything, what it writes to its standard error too: that is where whatever could
    not be started says why. `ended` is set at the stream's end.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._reader = reader
        self._header = bytearray()
        self._left = 0
        self._heard = False
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Passes on what is the agent's; the reader pauses the transport when it has enough."""
        view = memoryview(data)
        while view:
            if self._left == 0:
                take = _HEADER - len(self._header)
                self._header += view[:take]
                view = view[take:]
                if len(self._header) == _HEADER:
                    self._left = int.from_bytes(self._header[4:], "big")
                    self._wanted = self._header[0] != _ERROR or not self._heard
                    self._heard = self._heard or self._header[0] != _ERROR
                    self._header.clear()
                continue
            piece = view[: self._left]
            view = view[len(piece) :]
            self._left -= len(piece)
            if self._wanted:
                self._reader.feed_data(bytes(piece))

    def connection_lost(self, exc: Exception | None) -> None:
        """The container has ended, or its engine has."""
        super().connection_lost(exc)
        self.ended.set()


async def opened(
    stream: socket.socket,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Demultiplexer]:
    """The two ends of a stream, and what takes its output apart."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_BUFFER, loop=loop)
    transport, protocol = await loop.create_unix_connection(
        lambda: Demultiplexer(reader), sock=stream
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop), protocol
