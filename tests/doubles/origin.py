"""A server of the outside for tests of the egress proxy: it answers with what the test wants, byte
for byte, and keeps what it was sent."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.doubles.certificates import Authority

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came: the head's lines, and the body by its framing."""

    lines: tuple[bytes, ...]
    body: bytes

    @property
    def line(self) -> bytes:
        return self.lines[0]

    def field(self, name: str) -> list[bytes]:
        """All values of a field."""
        pairs = (line.partition(b":") for line in self.lines[1:])
        return [value.strip() for got, _, value in pairs if got.lower() == name.lower().encode()]


@dataclass(slots=True)
class Origin:
    """Listens on loopback. `reply` gives the whole answer; `talk`, if set, has the connection."""

    port: int = 0
    reply: Callable[[Asked], bytes] = lambda _: OK
    talk: Talk | None = None
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    names: list[str | None] = field(default_factory=list)
    """Server names that TLS asked for."""
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                if self.talk is not None:
                    await self.talk(reader, writer)
                    return
                while True:
                    asked = await read_request(reader)
                    self.asked.append(asked)
                    answer = self.reply(asked)
                    writer.write(answer)
                    await writer.drain()
                    if b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower():
                        return
        finally:
            self.writers.discard(writer)
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> Asked:
    """One request. Raises `IncompleteReadError` at the end."""
    head = await reader.readuntil(b"\r\n\r\n")
    asked = Asked(tuple(head[:-4].split(b"\r\n")), b"")
    body = b""
    if asked.field("transfer-encoding"):
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    elif lengths := asked.field("content-length"):
        body = await reader.readexactly(int(lengths[0]))
    return Asked(asked.lines, body)


@asynccontextmanager
async def origin(
    *hosts: str, authority: Authority | None = None, port: int = 0
) -> AsyncIterator[Origin]:
    """A server; with an authority it speaks TLS, with a certificate for the first of `hosts`."""
    made = Origin()
    context = None
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile(mode="w") as file:
            Path(file.name).write_text(authority.leaf(hosts[0]))
            context.load_cert_chain(file.name)
        context.sni_callback = lambda _tls, name, _context: made.names.append(name)
    server = await asyncio.start_server(made.serve, "127.0.0.1", port, ssl=context, limit=1 << 20)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in [*made.writers]:
            writer.transport.abort()
