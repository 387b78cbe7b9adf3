"""A cloud that serves models: it answers whatever path is asked, and keeps what it was sent.

Written from the protocols' descriptions, apart from the product's own code. Answers of Bedrock are
framed as `application/vnd.amazon.eventstream`: a prelude of two lengths and their checksum, headers
of strings, a payload, and a checksum over everything.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

EVENT_STREAM = "application/vnd.amazon.eventstream"
SERVER_SENT = "text/event-stream"


@dataclass(frozen=True)
class Asked:
    """One request, with its secrets: for the test's own eyes."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.raw)
        return parsed


@dataclass(frozen=True)
class Answer:
    """One answer, written in `pieces`; `cut` hangs up behind them, before the body's end."""

    pieces: tuple[bytes, ...]
    content_type: str = SERVER_SENT
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


class Cloud:
    """The record and the script of one double."""

    def __init__(self) -> None:
        self.base_url = ""
        self.asked: list[Asked] = []
        self.answers: deque[Answer] = deque()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append(Asked(method, target, headers, raw))
        answer = self.answers.popleft()
        told = {
            "content-type": answer.content_type,
            "transfer-encoding": "chunked",
            **answer.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        writer.write(f"HTTP/1.1 {answer.status} Scripted\r\n{lines}\r\n".encode("latin-1"))
        for piece in answer.pieces:
            if piece:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
        if not answer.cut:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return not answer.cut


@asynccontextmanager
async def cloud() -> AsyncIterator[Cloud]:
    """A double on loopback in the running loop; `base_url` says where."""
    served = Cloud()
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            await served.serve(reader, writer)
        finally:
            writers.discard(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    served.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        for writer in list(writers):
            writer.close()
        await server.wait_closed()


def chunk(event: Mapping[str, Any]) -> bytes:
    """A stream event as Bedrock frames it."""
    encoded = base64.b64encode(json.dumps(event).encode()).decode()
    headers = {":event-type": "chunk", ":message-type": "event"}
    return framed(headers, json.dumps({"bytes": encoded, "p": "abcdef"}).encode())


def exception(kind: str, message: str) -> bytes:
    """An exception in the middle of a stream, as Bedrock frames it."""
    headers = {":exception-type": kind, ":message-type": "exception"}
    return framed(headers, json.dumps({"message": message}).encode())


def framed(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message of an Amazon event stream."""
    packed = b"".join(
        struct.pack("!B", len(name))
        + name.encode()
        + struct.pack("!BH", 7, len(value))
        + value.encode()
        for name, value in {**headers, ":content-type": "application/json"}.items()
    )
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return message + struct.pack("!I", zlib.crc32(message))


def server_sent(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Stream events as server-sent events."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )
