"""The double's HTTP/1.1 server: one asyncio protocol, keep-alive, chunked answers, no framework.

It speaks just what a Messages-API client sends: requests with a content length, one at a time on a
connection. Anything else is answered with an error and a closed connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, cast

import orjson

from tests.doubles.messages_reply import Gate, Reply, error, offset_of

_SECRET_HEADERS = frozenset({"x-api-key", "authorization", "proxy-authorization", "cookie"})
_STREAM_ASKED = re.compile(rb'"stream"\s*:\s*true')
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(slots=True)
class _State:
    aborted: bool = False
    answered: bool = False


@dataclass(frozen=True)
class Request:
    """One request as it came. Secret headers show only that they were there (`***`)."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    state: _State = field(default_factory=_State)

    @cached_property
    def body(self) -> dict[str, Any]:
        """The body, parsed when first asked for."""
        parsed: dict[str, Any] = orjson.loads(self.raw)
        return parsed

    @property
    def streaming(self) -> bool:
        """Whether a stream was asked for; read from the bytes, as the bench sends large bodies."""
        return _STREAM_ASKED.search(self.raw) is not None

    @property
    def aborted(self) -> bool:
        """Whether the client hung up before the answer was complete."""
        return self.state.aborted

    @property
    def answered(self) -> bool:
        """Whether the whole answer was written."""
        return self.state.answered

    @property
    def newest_user_text(self) -> str:
        """The text of the newest user message that is more than tool results."""
        for message in reversed(self.body["messages"]):
            if message["role"] != "user":
                continue
            content = message["content"]
            if isinstance(content, str):
                return content
            texts = [block["text"] for block in content if block["type"] == "text"]
            if texts:
                return "\n".join(texts)
        return ""

    @property
    def tool_results(self) -> dict[str, dict[str, Any]]:
        """The tool results in the last message, by tool use id."""
        content = self.body["messages"][-1]["content"]
        if isinstance(content, str):
            return {}
        return {b["tool_use_id"]: b for b in content if b["type"] == "tool_result"}


Answerer = Callable[[Request], Reply]


class Script(Protocol):
    """What the server asks and tells; it is called on the server's thread."""

    def answer(self, request: Request) -> Reply: ...
    def new_id(self, prefix: str) -> str: ...
    def connected(self) -> None: ...
    def changed(self) -> None: ...


class MessagesProtocol(asyncio.Protocol):
    """One client connection."""

    def __init__(self, script: Script, connections: set[MessagesProtocol]) -> None:
        self._script = script
        self._connections = connections
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._script.connected()

    def close(self) -> None:
        """Hang up, whatever is being answered."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._request is not None and not self._request.state.answered:
            self._request.state.aborted = True
            self._script.changed()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if self._task is None:
            self._serve_buffered()

    def _serve_buffered(self) -> None:
        while self._task is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:])
            }
            length = int(headers.get("content-length", "0"))
            start = end + 4
            if headers.get("expect") == "100-continue" and len(self._buffer) == start:
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if len(self._buffer) < start + length:
                return
            raw = self._buffer[start : start + length]
            self._buffer = self._buffer[start + length :]
            method, target, _ = head[0].split(" ", 2)
            for name in _SECRET_HEADERS & headers.keys():
                headers[name] = "***"
            self._request = Request(method, target.partition("?")[0], headers, raw)
            self._respond(self._request)

    def _respond(self, request: Request) -> None:
        if request.path != "/v1/messages" or request.method != "POST":
            reply = error(404, f"the double does not serve {request.method} {request.path}")
        elif "content-length" not in request.headers:
            reply = error(400, "the double needs a content length")
        else:
            reply = self._script.answer(request)
        body = reply.body(request.streaming, self._script.new_id)
        head = self._head(request, reply)
        if not reply.pauses and reply.cut_after is None:
            request.state.answered = True  # before the client can look at it
            self._write(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            return
        upto = len(body) if reply.cut_after is None else offset_of(body, reply.cut_after)
        pauses = sorted(
            ((min(offset_of(body, pause.after), upto), pause.wait) for pause in reply.pauses),
            key=lambda pause: pause[0],
        )
        self._write(head)
        self._task = asyncio.get_running_loop().create_task(
            self._play(request, body[:upto], pauses, cut=reply.cut_after is not None)
        )

    async def _play(
        self,
        request: Request,
        body: bytes,
        pauses: Sequence[tuple[int, Gate | float]],
        *,
        cut: bool,
    ) -> None:
        """Write a body that pauses, or after which the connection ends."""
        at = 0
        for until, wait in pauses:
            self._write_chunk(body[at:until])
            at = until
            if isinstance(wait, Gate):
                await wait.passed()
            else:
                await asyncio.sleep(wait)
        request.state.answered = True
        self._write_chunk(body[at:])
        self._script.changed()
        self._task = None
        if cut and self._transport is not None:
            self._transport.close()
            return
        self._write(b"0\r\n\r\n")
        self._serve_buffered()

    def _head(self, request: Request, reply: Reply) -> bytes:
        headers = {
            "content-type": "text/event-stream" if request.streaming else "application/json",
            "request-id": self._script.new_id("req"),
            "transfer-encoding": "chunked",
            **reply.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        reason = _REASONS.get(reply.status, "Scripted")
        return f"HTTP/1.1 {reply.status} {reason}\r\n{lines}\r\n".encode("latin-1")

    def _write_chunk(self, data: bytes) -> None:
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
