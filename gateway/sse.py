"""Server-sent events: how frames are written, each once, and how they reach one reader.

Frames and their rules are those of EVENTS §8 and ARCHITECTURE §8: an `event:` line on every frame,
an `id:` line only where a reader may resume without skipping anything.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractContextManager

    from google.protobuf.message import Message
    from starlette.types import Receive, Scope, Send

    from chassis.clock import Clock
    from gateway.transcode.encode import ObjectEncoder

ABORT = "drover.abort"
"""Name of the ASGI extension that cuts a connection without waiting for its peer."""

_KEEP_ALIVE = b": keep-alive\n\n"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BAD_IN_ID = re.compile(r"[\r\n\x00]")
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Frame:
    """One event as it goes over the wire; no `data` where HTTP does not show it.

    `seq` is its place in the log, 0 for echoes and previews; `id` is empty for previews.
    """

    data: bytes
    id: str
    seq: int


class FrameCache:
    """Makes the frames of a stream's messages, each once, however many readers there are.

    How frames are spread over messages differs from reader to reader. The same wire form gives the
    same frame, so that the cache needs no notion of identity. It keeps at most `limit` bytes of
    them, the most recently used.
    """

    def __init__(
        self,
        message_type: type[Message],
        event: ObjectEncoder,
        preview: ObjectEncoder,
        limit: int,
    ) -> None:
        self._type = message_type
        self._event = event
        self._preview = preview
        self._limit = limit
        self._size = 0
        self._known: OrderedDict[bytes, Frame] = OrderedDict()

    def frames(self, message: bytes) -> list[Frame]:
        """The frames of a message of the stream."""
        response: Any = self._type.FromString(message)
        return [self._frame(frame) for frame in response.frames]

    def _frame(self, message: Any) -> Frame:  # noqa: ANN401  # a StreamFrame
        raw = message.SerializeToString()
        known = self._known.get(raw)
        if known is not None:
            self._known.move_to_end(raw)
            return known
        frame = self._known[raw] = self._make(message)
        self._size += len(raw) + len(frame.data)
        while self._size > self._limit:
            old, dropped = self._known.popitem(last=False)
            self._size -= len(old) + len(dropped.data)
        return frame

    def _make(self, message: Any) -> Frame:  # noqa: ANN401
        kind = message.WhichOneof("frame")
        if kind == "preview":
            return Frame(write(self._preview.members(message.preview)), "", 0)
        event = message.event
        members = self._event.members(event)
        return Frame(write(members, event.id if event.seq else ""), event.id, event.seq)


def write(members: dict[str, object] | None, frame_id: str = "") -> bytes:
    """The frame of a JSON object, named by its `type`; nothing for `None`."""
    if members is None:
        return b""
    data = orjson.dumps(members)
    if b"\n" in data or b"\r" in data:  # between the tokens of opaque JSON only
        data = _LINE_END.sub(b"\ndata: ", data)
    name = str(members["type"]).encode()
    if frame_id and not _BAD_IN_ID.search(frame_id):
        return b"event: %b\nid: %b\ndata: %b\n\n" % (name, frame_id.encode(), data)
    return b"event: %b\ndata: %b\n\n" % (name, data)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of silence after which a keep-alive goes out, and until a stuck reader is dropped."""

    keep_alive: float
    stall: float


class ReaderGoneError(Exception):
    """The reader has closed its connection, or has stopped to read."""


class Source(Protocol):
    """Where a stream's frames come from."""

    def frames(self) -> AsyncGenerator[bytes, None]:
        """The frames, once."""
        ...

    def close(self) -> None:
        """Lets go of what stands behind them."""
        ...


class EventStream:
    """The response that writes frames to one reader until they end or the reader is gone.

    What the frames raise ends the stream with an `error` event, made by `explain`. `stop` ends it
    without one: the reader comes back and resumes. `open_while` is held as long as it is open.
    """

    def __init__(
        self,
        source: Source,
        pace: Pace,
        clock: Clock,
        *,
        stop: asyncio.Event,
        explain: Callable[[Exception], bytes],
        open_while: AbstractContextManager[object],
    ) -> None:
        self._source = source
        self._pace = pace
        self._clock = clock
        self._stop = stop
        self._explain = explain
        self._open_while = open_while
        self._last = clock.monotonic()
        self._writing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Writes the response."""
        try:
            with self._open_while:
                await send(
                    {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}
                )
                await self._write_all(receive, send)
            async with asyncio.timeout(self._pace.stall):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except* (ReaderGoneError, TimeoutError):
            # Closing would wait for the reader to take what is on its way to it.
            if (extension := scope.get("extensions", {}).get(ABORT)) is not None:
                extension["call"]()
        finally:
            self._source.close()

    async def _write_all(self, receive: Receive, send: Send) -> None:
        async with asyncio.TaskGroup() as group:
            pump = group.create_task(self._pump(send))
            stop = group.create_task(self._stop.wait())
            watch = group.create_task(self._watch_reader(receive))
            beat = group.create_task(self._keep_alive(send))
            await asyncio.wait({pump, stop}, return_when=asyncio.FIRST_COMPLETED)
            for task in (pump, stop, watch, beat):
                task.cancel()

    async def _pump(self, send: Send) -> None:
        try:
            async with aclosing(self._source.frames()) as frames:
                async for data in frames:
                    await self._write(send, data)
        except Exception as error:  # noqa: BLE001  # mapped, logged and sent
            await self._write(send, b"event: error\ndata: %b\n\n" % self._explain(error))

    async def _write(self, send: Send, data: bytes) -> None:
        self._writing = True
        await send({"type": "http.response.body", "body": data, "more_body": True})
        self._writing = False
        self._last = self._clock.monotonic()

    async def _keep_alive(self, send: Send) -> None:
        while True:
            if self._writing:
                await asyncio.sleep(self._pace.stall / 2)
                idle = self._clock.monotonic() - self._last
                if self._writing and idle > self._pace.stall:
                    raise ReaderGoneError
                continue
            due = self._last + self._pace.keep_alive - self._clock.monotonic()
            if due <= 0:
                await self._write(send, _KEEP_ALIVE)
            else:
                await asyncio.sleep(min(due, self._pace.stall / 2))

    @staticmethod
    async def _watch_reader(receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        raise ReaderGoneError
