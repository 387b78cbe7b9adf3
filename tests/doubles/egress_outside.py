"""What is outside of sandboxes, for the hands' side alone: a vault proxy without one.

It takes connections with their preamble as the vault proxy's egress port does, and answers every
request itself, in the name of whatever host was asked for, with what it was sent.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from chassis.clock import SystemClock
from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from drover.event.v1.session_event_pb2 import SessionError
from services.hands.egress.grants import Grant, Grants
from services.hands.egress.metrics import EgressMetrics
from services.hands.egress.network import Network
from services.hands.egress.proxy import ProxyAddress
from tests.doubles.certificates import Authority

Head = tuple[str, str, dict[str, str]]
"""A method, a target and headers."""


class Granter:
    """Gives grants as the vault proxy does. Each session has an authority of its own."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str]] = []
        self.revoked: list[str] = []
        self.variables: dict[str, dict[str, str]] = {}
        self.problems: list[SessionError] = []
        self.authorities: dict[str, Authority] = {}
        self.failure: Reason | None = None
        self.life = 300.0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def open(self, session_id: str, hand_id: str) -> Grant:
        self.opened.append((session_id, hand_id))
        await self.may_answer.wait()
        if self.failure is not None:
            raise DroverError(self.failure, "no grant today")
        now = SystemClock().monotonic()
        return Grant(
            Secret(f"{session_id}/{hand_id}/{len(self.opened)}"),
            now + self.life / 2,
            now + self.life,
            self.authority(session_id).certificate,
            self.variables.get(session_id, {}),
            tuple(self.problems),
        )

    async def revoke(self, session_id: str) -> None:
        self.revoked.append(session_id)

    def authority(self, session_id: str) -> Authority:
        if session_id not in self.authorities:
            self.authorities[session_id] = Authority(f"Drover session {session_id}")
        return self.authorities[session_id]


class Outside:
    """The proxy. `sessions` are those whose grants connections came with, `targets` where to.

    `pages` are what is answered instead, by host and path. /download is long; what asks for /wait
    waits until it is cut off, and so do `waiting`.
    """

    def __init__(self, *, most: int = 128) -> None:
        self.granter = Granter()
        self.sessions: list[str] = []
        self.targets: list[str] = []
        self.waiting = 0
        self.pages: dict[str, bytes] = {}
        self.most = most
        self.metrics = EgressMetrics()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.files = tempfile.TemporaryDirectory()
        self.path = Path(self.files.name) / "proxy"

    async def network(self, directory: Path, tasks: asyncio.TaskGroup) -> Network:
        network = Network(
            directory,
            ProxyAddress(f"unix:{self.path}"),
            Grants(self.granter, tasks, SystemClock()),
            tasks,
            most=self.most,
            clock=SystemClock(),
            metrics=self.metrics,
        )
        await network.start()
        return network

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=1 << 20)

    async def stop(self) -> None:
        """Ends as a process does that is killed: every connection is cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in [*self._connections]:
            writer.transport.abort()
        self.path.unlink(missing_ok=True)

    def reached(self, host: str) -> bool:
        """Whether any connection asked for a host."""
        return any(host in target for target in self.targets)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                await self._connection(reader, writer)
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, grant = (await reader.readuntil(b"\n")).decode().split()
        assert version == "DROVER/1"
        session_id = grant.partition("/")[0]
        self.sessions.append(session_id)
        head = await _head(reader)
        if head is None:
            return
        method, target, _ = head
        self.targets.append(target)
        if method == "CONNECT":
            host = target.rpartition(":")[0]
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await writer.drain()
            await writer.start_tls(self._context(session_id, host))
            while (inner := await _head(reader)) is not None:
                await self._answer(reader, writer, host, inner)
            return
        await self._answer(reader, writer, "", head)

    def _context(self, session_id: str, host: str) -> ssl.SSLContext:
        file = Path(self.files.name) / f"{session_id}-{host}.pem"
        if not file.exists():
            file.write_text(self.granter.authority(session_id).leaf(host))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, head: Head
    ) -> None:
        method, path, headers = head
        length = int(headers.get("content-length", "0"))
        if path == "/download":
            await _download(writer)
            return
        if path.endswith("/wait"):
            self.waiting += 1
            try:
                await reader.read(1)
            finally:
                self.waiting -= 1
            return
        body = await reader.readexactly(length)
        told: dict[str, Any] = {"host": host, "method": method, "path": path, "headers": headers}
        page, kind = self.pages.get(host + path), "text/html"
        if page is None:
            page, kind = json.dumps({**told, "body": len(body)}).encode(), "application/json"
        shown = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(page)}\r\n\r\n"
        writer.write(shown.encode() + page)
        await writer.drain()


async def _head(reader: asyncio.StreamReader) -> Head | None:
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = lines[0].split(" ")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return method, target, {name.lower(): value.strip() for name, _, value in pairs}


async def _download(writer: asyncio.StreamWriter) -> None:
    size = 64 * 1024 * 1024
    writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode())
    for _ in range(size >> 16):
        writer.write(bytes(1 << 16))
        await writer.drain()


@asynccontextmanager
async def running_outside(*, most: int = 128) -> AsyncIterator[Outside]:
    """A proxy that listens."""
    outside = Outside(most=most)
    await outside.start()
    try:
        yield outside
    finally:
        await outside.stop()
        outside.files.cleanup()
