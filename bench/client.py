"""A lean HTTP client, so that the client's own cost stays out of the figures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

BETA = "managed-agents-2026-04-01"


class Connection:
    """One keep-alive connection to the gateway."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self._host, self._port, self._key = host, port, key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def _head(self, method: str, path: str, length: int, extra: str = "") -> bytes:
        return (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n"
            f"x-api-key: {self._key}\r\nanthropic-beta: {BETA}\r\n{extra}"
            f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        ).encode()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, limit=1 << 26)
        return self._streams

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Sends one request and answers the decoded body; raises on anything but 200."""
        reader, writer = await self._open()
        payload = b"" if body is None else json.dumps(body).encode()
        writer.write(self._head(method, path, len(payload)) + payload)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        answer = json.loads(await reader.readexactly(length))
        if " 200 " not in head.split("\r\n")[0]:
            raise RuntimeError(f"{method} {path}: {answer}")
        return answer

    @asynccontextmanager
    async def stream(self, session: str) -> AsyncIterator[AsyncIterator[str]]:
        """Opens the session's stream; yields the types of its events as they come."""
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=1 << 26)
        path = f"/v1/sessions/{session}/events/stream"
        writer.write(self._head("GET", path, 0, "accept: text/event-stream\r\n"))
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"stream: {head.decode()}")

        async def types() -> AsyncIterator[str]:
            while line := await reader.readline():
                if line.startswith(b"event: "):
                    yield line[7:].strip().decode()

        try:
            yield types()
        finally:
            writer.close()

    async def close(self) -> None:
        """Closes the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def user_message(text: str) -> dict[str, Any]:
    """The body of an events.send with one user message."""
    content = [{"type": "text", "text": text}]
    return {"events": [{"type": "user.message", "content": content}]}
