"""A container's input and output as one stream (Engine API, "Attach to a container").

The output is multiplexed: before each piece come eight bytes, which are the stream that it is of,
three zeros, and its length.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

_ANSWER_BYTES: Final = 65536
_HEADER: Final = 8
_ERROR: Final = 2
_BUFFER: Final = 256 * 1024


def attach(path: str, api_version: str, container_id: str, *, seconds: float) -> socket.socket:
    """Attaches to a container that has not started yet. Raises `OSError`.

    Not the SDK's own way, which hands out a socket that belongs to a response of its HTTP client.
    """
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.settimeout(seconds)
        stream.connect(path)
        stream.sendall(
            f"POST /v{api_version}/containers/{container_id}/attach"
            "?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
            "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer and len(answer) < _ANSWER_BYTES:
            piece = stream.recv(_ANSWER_BYTES)
            if not piece:
                break
            answer += piece
        _check_upgrade(answer)
        stream.setblocking(False)
    except BaseException:
        stream.close()
        raise
    return stream


def _check_upgrade(answer: bytes) -> None:
    if b" 101 " not in answer.partition(b"\r\n")[0]:
        msg = "the container engine attaches nobody"
        raise ConnectionError(msg)


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
        self.let_go = False

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

    def eof_received(self) -> bool | None:
        """The container has ended."""
        self.let_go = True
        self.ended.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The engine has let go of it, or we have."""
        super().connection_lost(exc)
        self.let_go = self.let_go or exc is not None
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
