"""An MCP server that does not keep to the protocol: by hand, since no library would help.

Each path below is a fault. Until its moment comes the server behaves, and speaks 2025-11-25.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from tests.doubles.mcp_tools import Offer

PATHS = {
    "/drop": "reads a call and closes the connection",
    "/silent": "reads a call and says nothing",
    "/huge": "answers a call with 100 MB of JSON",
    "/crumbs": "answers a call with 16 MB of blocks that hold nothing",
    "/flood": "answers a call with events without end",
    "/chatter": "answers a call with small messages without end",
    "/trickle": "answers a call with a comment a moment, without end",
    "/other-id": "answers a call by the id of another",
    "/version": "speaks a version that nobody knows",
    "/redirect": "redirects a call to another path of its own",
    "/away": "redirects everything to another host",
    "/broken": "answers a call with a status of 500 and a page",
    "/packed": "answers a call with compressed bytes, asked or not",
    "/garbage": "answers a call with what is no JSON",
    "/mute": "says nothing at all",
    "/gone": "has forgotten the protocol's session, once",
    "/busy": "answers a call with a status of 429",
    "/elsewhere": "is of the older transport, and names another host for messages",
    "/lost-401": "begins to answer a call, breaks off, and wants a token for the rest",
    "/lost-404": "begins to answer a call, breaks off, and has forgotten the protocol's session",
    "/lost-405": "begins to answer a call, breaks off, and has no rest to give",
    "/lost-503": "begins to answer a call, breaks off, and is in trouble",
}
_LOST = "/lost-"
_PIECE = b"x" * 65_536
_ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "/redirect": (307, b"", {"location": "/plain"}),
    "/broken": (500, b"<h1>oops</h1>", {"content_type": "text/html"}),
    "/busy": (429, b"", {"retry_after": "7"}),
    "/packed": (200, b"\x1f\x8b", {"content_encoding": "gzip"}),
    "/garbage": (200, b'{"jsonrpc": "2.0", ', {}),
    "/gone": (404, b"", {}),
}


class Faults:
    """The server. `seen` are the requests: path, HTTP method, JSON-RPC method, authorization."""

    def __init__(self, offer: Offer) -> None:
        self.seen: list[dict[str, Any]] = []
        self._offer = offer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._forgot: set[str] = set()

    async def listen(self) -> int:
        """Listens, and answers the port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stops, whatever is under way."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._one(reader, writer):
                await writer.drain()
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        http, path, _ = first.split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
            if name
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        message = json.loads(body) if body else {}
        method = message.get("method", "")
        self.seen.append(
            {
                "path": path,
                "http": http,
                "method": method,
                "authorization": headers.get("authorization", ""),
            }
        )
        if path == "/mute":
            await asyncio.Event().wait()
        if path == "/away":
            return _send(writer, 307, b"", location="http://other.example.com/mcp")
        if path == "/elsewhere" and http == "GET":
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                b"event: endpoint\ndata: http://other.example.com/messages\n\n"
            )
            await writer.drain()
            await asyncio.Event().wait()
        if http == "GET" and path.startswith(_LOST) and "last-event-id" in headers:
            return _send(writer, int(path.removeprefix(_LOST)), b"")
        if http != "POST" or path == "/elsewhere":
            return _send(writer, 405, b"")
        if method == "tools/call" and path.startswith(_LOST):
            self._offer.runs[path] += 1
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                b"id: 1\nretry: 10\ndata:\n\n"
            )
            return False
        if method == "tools/call":
            return await self._fault(path, message, reader, writer)
        return _behave(writer, path, message)

    async def _fault(
        self,
        path: str,
        message: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        self._offer.runs[path] += 1
        if path == "/silent":
            await reader.read()
        if path in {"/drop", "/silent"}:
            return False
        if path == "/huge":
            return await _huge(writer, message)
        if path == "/flood":
            await _stream(writer, b": " + b"x" * 60_000 + b"\n\n")
        if path == "/chatter":
            told = {"level": "info", "data": "and another thing"}
            message = {"jsonrpc": "2.0", "method": "notifications/message", "params": told}
            await _stream(writer, f"data: {json.dumps(message)}\n\n".encode() * 50)
        if path == "/trickle":
            await _stream(writer, b": .\n\n", every=0.05)
        if path in {"/other-id", "/crumbs"}:
            return _odd(writer, path, message)
        if path in _ANSWERS and path not in self._forgot:
            if path == "/gone":
                self._forgot.add(path)
            status, body, more = _ANSWERS[path]
            return _send(writer, status, body, **more)
        return _answer(writer, message, _said("done"))


def _behave(writer: asyncio.StreamWriter, path: str, message: dict[str, Any]) -> bool:
    match message.get("method"):
        case "initialize":
            version = "1999-12-31" if path == "/version" else "2025-11-25"
            return _answer(
                writer,
                message,
                {
                    "protocolVersion": version,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "odd", "version": "0"},
                },
                mcp_session_id="s-1",
            )
        case "tools/list":
            tool = {"name": "do", "description": "Does.", "inputSchema": {"type": "object"}}
            return _answer(writer, message, {"tools": [tool]})
        case "server/discover":
            return _send(writer, 400, b"")
    return _send(writer, 202, b"")


def _odd(writer: asyncio.StreamWriter, path: str, message: dict[str, Any]) -> bool:
    if path == "/other-id":
        return _answer(writer, {**message, "id": 4711}, _said("for another"))
    return _answer(writer, message, {"content": [{"type": "text", "text": ""}] * 380_000})


def _said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _answer(
    writer: asyncio.StreamWriter, message: dict[str, Any], result: dict[str, Any], **headers: str
) -> bool:
    told = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
    return _send(writer, 200, json.dumps(told).encode(), **headers)


def _send(writer: asyncio.StreamWriter, status: int, body: bytes, **headers: str) -> bool:
    headers = {"content_type": "application/json", **headers, "content_length": str(len(body))}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode() + body)
    return True


async def _huge(writer: asyncio.StreamWriter, message: dict[str, Any]) -> bool:
    size = 100 * 1024 * 1024
    told = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": _said("@")}).encode()
    start, end = told.split(b"@")
    length = len(start) + size + len(end)
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        + f"content-length: {length}\r\n\r\n".encode()
        + start
    )
    for _ in range(size // len(_PIECE)):
        writer.write(_PIECE)
        await writer.drain()
    writer.write(end)
    return True


async def _stream(writer: asyncio.StreamWriter, piece: bytes, *, every: float = 0) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(every)
