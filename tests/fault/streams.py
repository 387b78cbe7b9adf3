"""Readers of event streams on bare sockets: as many as a test wants, cut wherever it wants."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

from tests.e2e.stack import BETA, KEY

_ID: Final = re.compile(rb"\nid: (\S+)\n")


@dataclass(frozen=True, slots=True)
class At:
    """Where in a session a stream begins: `last` is sent as Last-Event-ID, `after` in the URL."""

    url: str
    session_id: str
    last: str | None = None
    after: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    @property
    def request(self) -> bytes:
        """The request's bytes."""
        query = "" if self.after is None else f"?after={quote(self.after)}"
        last = "" if self.last is None else f"last-event-id: {self.last}\r\n"
        return (
            f"GET /v1/sessions/{self.session_id}/events/stream{query} HTTP/1.1\r\n"
            f"host: localhost\r\nx-api-key: {KEY}\r\nanthropic-beta: {BETA}\r\n{last}\r\n"
        ).encode()


class Body:
    """The body of a response in chunks, put together from what arrives."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.status = 0
        self._raw = bytearray()
        self._left = 0  # of the chunk that has begun, its line end with it
        self._has_head = False

    def feed(self, raw: bytes) -> None:
        """Takes in bytes of the response."""
        self._raw += raw
        if not self._has_head:
            head, found, rest = self._raw.partition(b"\r\n\r\n")
            if not found:
                return
            self._has_head, self._raw = True, rest
            self.status = int(head.split(b" ", 2)[1])
        while self._raw:
            if not self._left:
                size, found, rest = self._raw.partition(b"\r\n")
                if not found:
                    return
                self._left, self._raw = int(size, 16) + 2, rest
            taken = self._raw[: self._left]
            del self._raw[: self._left]
            self._left -= len(taken)
            self.data += taken[: len(taken) - max(0, 2 - self._left)] if self._left < 2 else taken


def ids(body: bytes) -> list[str]:
    """The ids of the whole frames of a body."""
    whole = bytes(body).rpartition(b"\n\n")[0].decode()
    return [line[4:] for line in whole.split("\n") if line.startswith("id: ")]


class Stream:
    """One stream, read when it is told to."""

    def __init__(self, at: At, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.at = at
        self.body = Body()
        self._reader = reader
        self._writer = writer

    async def more(self) -> bool:
        """Waits for more; false at the end, or when the connection broke."""
        try:
            raw = await self._reader.read(1 << 16)
        except ConnectionError:
            return False
        self.body.feed(raw)
        return bool(raw)

    async def answered(self) -> None:
        """Waits for the answer's head."""
        while not self.body.status:
            assert await self.more()
        assert self.body.status == 200, bytes(self.body.data)

    async def read(self, count: int) -> bytes:
        """The first so many bytes of the body."""
        while len(self.body.data) < count:
            assert await self.more()
        return bytes(self.body.data[:count])

    async def until(self, event_id: str) -> list[str]:
        """The ids that it has given once it has given this one."""
        while event_id not in (seen := ids(self.body.data)):
            assert await self.more(), seen
        return seen

    def close(self) -> None:
        """Cuts it."""
        self._writer.transport.abort()


@asynccontextmanager
async def opened(at: At, *, receive_buffer: int = 0) -> AsyncIterator[Stream]:
    """A stream that has been asked for. With a small buffer it soon holds up its writer."""
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, at.address)
    reader, writer = await asyncio.open_connection(sock=connection, limit=receive_buffer or 1 << 16)
    writer.write(at.request)
    stream = Stream(at, reader, writer)
    try:
        yield stream
    finally:
        stream.close()


class Follower(asyncio.Protocol):
    """Takes down the ids of a stream as they arrive, and nothing else: one of very many.

    `heard` is called with each of them.
    """

    def __init__(self, at: At, heard: Callable[[str], None] = lambda _id: None) -> None:
        self.at = at
        self.seen: list[str] = []
        self.answered = asyncio.Event()
        self.lost = asyncio.Event()
        self._heard = heard
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    async def open(self) -> Self:
        """Opens the stream, until it is answered."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, *self.at.address)
        await self.answered.wait()
        return self

    async def close(self) -> None:
        """Cuts the connection."""
        if self._transport is not None:
            self._transport.abort()
            await self.lost.wait()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self.at.request)

    def data_received(self, data: bytes) -> None:
        if not self.answered.is_set():
            assert data.startswith(b"HTTP/1.1 200 "), data
            self.answered.set()
        whole, _, self._rest = (self._rest + data).rpartition(b"\n\n")
        for found in _ID.findall(whole):
            event_id = found.decode()
            self.seen.append(event_id)
            self._heard(event_id)

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost.set()


def listed(client: Any, session_id: str) -> list[str]:
    """The ids of the log, by the official client."""
    return [event.id for event in client.beta.sessions.events.list(session_id, limit=1_000)]
