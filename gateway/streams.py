"""Event streams: one subscription to the session service for each reader, kept alive for it.

The session service may go away and come back under a stream: the gateway resumes behind the last
event that it has shown, and the reader does not notice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.event.v1 import event_pb2
from drover.session.v1 import preview_pb2
from gateway import errors
from gateway.sse import EventStream, FrameCache
from gateway.upstream import cancellation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from prometheus_client import Gauge
    from starlette.requests import Request

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.session.v1 import session_service_pb2
    from gateway.sse import Frame, Pace
    from gateway.transcode.encode import Encoders
    from gateway.transcode.routes import Route
    from gateway.upstream import Stream

POSITION_KEY = "x-drover-last-event-id"
"""Initial metadata: id of the log's last event when the subscription began; empty without any."""

_MAX_ECHOES = 1_000
_REFUSAL_SECONDS = 0.03
_CACHE_BYTES = 32 * 1024 * 1024

EventsRequest: TypeAlias = (
    "session_service_pb2.StreamEventsRequest | session_service_pb2.StreamThreadEventsRequest"
)


@dataclass(frozen=True, slots=True)
class Resumption:
    """How long a broken subscription is tried again: `seconds` in all, every `first` to `most`."""

    seconds: float = 30.0
    first: float = 0.05
    most: float = 1.0


class Subscription:
    """One reader's view of a session's feed: every stamped event once, in the log's order."""

    def __init__(
        self,
        call: Stream,
        request: EventsRequest,
        cache: FrameCache,
        resumption: Resumption,
        clock: Clock,
        *,
        open_seconds: float,
    ) -> None:
        self._open_call = call
        self._request = request
        self._cache = cache
        self._resumption = resumption
        self._clock = clock
        self._open_seconds = open_seconds
        self._call = call(request)
        # Behind which event to resume: "" is the log's beginning, None is not known.
        self._position: str | None = None
        if request.HasField("after_event_id"):
            self._position = request.after_event_id
        self._seq = 0
        self._echoed: OrderedDict[str, None] = OrderedDict()
        # Until when breaks are one outage: a frame, or a subscription that lasted, ends it.
        self._give_up: float | None = None
        self._opened = clock.monotonic()

    async def open(self) -> None:
        """Subscribes; whatever is committed from now on will be seen. Raises `DroverError`."""
        position = await self._subscribe(self._open_seconds)
        if self._position is None:
            self._position = position

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The frames to show, those of one message together.

        Raises `DroverError` when the feed cannot go on.
        """
        while True:
            try:
                raw = await self._read()
            except DroverError as error:
                await self._resume(error)
                continue
            if raw is None:
                return
            self._give_up = None
            frames = self._cache.frames(raw)
            if data := b"".join([frame.data for frame in frames if self._is_new(frame)]):
                yield data

    def close(self) -> None:
        """Ends the subscription."""
        self._call.cancel()

    async def _subscribe(self, seconds: float) -> str | None:
        """Waits until the subscription stands; the position that it begins at, if that is told."""
        call = self._call
        try:
            async with asyncio.timeout(seconds):
                metadata = await call.initial_metadata()
                for key, value in metadata:
                    if key == POSITION_KEY:
                        return str(value)
                if await _is_over(call) and await call.code() is not grpc.StatusCode.OK:
                    await call.read()  # raises what the call ended with
        except TimeoutError:
            call.cancel()
            raise DroverError(
                Reason.DEADLINE_EXCEEDED, "the session service did not answer in time"
            ) from None
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.CancelledError as error:
            call.cancel()
            raise cancellation(error) from None
        return None

    async def _read(self) -> bytes | None:
        try:
            raw = await self._call.read()
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.CancelledError as error:
            raise cancellation(error) from None
        return raw if isinstance(raw, bytes) else None  # grpc.aio.EOF

    async def _resume(self, error: DroverError) -> None:
        """Subscribes again behind the last event shown, or raises the error."""
        if not error.rule.retryable or self._position is None:
            raise error
        now, seconds = self._clock.monotonic(), self._resumption.seconds
        if self._give_up is None or now - self._opened > seconds:
            self._give_up = now + seconds
        delay = self._resumption.first
        while (left := self._give_up - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(delay, left))
            delay = min(2 * delay, self._resumption.most)
            self._request.after_event_id = self._position
            # Waits for the connection instead of failing: the channel alone knocks for all.
            self._call = self._open_call(self._request, wait_for_ready=True)
            try:
                await self._subscribe(max(0.0, self._give_up - self._clock.monotonic()))
            except DroverError as again:
                if not again.rule.retryable:
                    raise
            else:
                self._opened = self._clock.monotonic()
                return
        raise error

    def _is_new(self, frame: Frame) -> bool:
        """Notes a frame, and says whether the reader has not seen it: a resumption repeats some."""
        if frame.seq:
            if frame.seq <= self._seq:
                return False
            self._seq, self._position = frame.seq, frame.id
            self._echoed.pop(frame.id, None)
        elif frame.id:
            if frame.id in self._echoed:
                return False
            self._echoed[frame.id] = None
            if len(self._echoed) > _MAX_ECHOES:
                self._echoed.popitem(last=False)
        return True


async def _is_over(call: grpc.aio.UnaryStreamCall[Any, bytes]) -> bool:
    """Whether a call has ended with its initial metadata: a refusal, as a rule.

    gRPC reports metadata and status of a refusal one after the other, and neither says that the
    other will follow. A service that tells the position is not asked.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_REFUSAL_SECONDS):
            await call.code()
    return call.done()


class StreamEndpoints:
    """Makes the endpoints of routes that stream events; those of one RPC share their frames."""

    def __init__(
        self,
        encoders: Encoders,
        *,
        pace: Pace,
        resumption: Resumption,
        open_seconds: float,
        open_streams: Gauge,
        clock: Clock,
        ids: IdSource,
        stop: asyncio.Event,
    ) -> None:
        self._encoders = encoders
        self._pace = pace
        self._resumption = resumption
        self._open_seconds = open_seconds
        self._open_streams = open_streams
        self._clock = clock
        self._ids = ids
        self._stop = stop
        self._caches: dict[str, FrameCache] = {}

    def endpoint(
        self, route: Route, call: Stream
    ) -> Callable[[Request, Mapping[str, str]], Awaitable[EventStream]]:
        """The endpoint of a route whose RPC streams events and previews."""
        output = route.method.output_type
        cache = self._caches.get(output.full_name)
        if cache is None:
            event = self._encoders.of(event_pb2.Event.DESCRIPTOR)
            preview = self._encoders.of(preview_pb2.Preview.DESCRIPTOR)
            cache = FrameCache(GetMessageClass(output), event, preview, _CACHE_BYTES)
            self._caches[output.full_name] = cache

        async def serve(request: Request, path: Mapping[str, str]) -> EventStream:
            return await self._serve(route, call, cache, request, path)

        return serve

    async def _serve(
        self,
        route: Route,
        call: Stream,
        cache: FrameCache,
        request: Request,
        path: Mapping[str, str],
    ) -> EventStream:
        """The response, once the subscription stands. Raises `DroverError`."""
        query = request.scope["query_string"]
        message: Any = route.request.decode(path, query, request.headers, b"")
        # A browser repeats the URL that it began with, and adds where it has got to.
        if last := request.headers.get("last-event-id", ""):
            message.after_event_id = last
        subscription = Subscription(
            call,
            message,
            cache,
            self._resumption,
            self._clock,
            open_seconds=self._open_seconds,
        )
        await subscription.open()
        request_id = current_call().request_id
        return EventStream(
            subscription,
            self._pace,
            self._clock,
            stop=self._stop,
            explain=lambda error: errors.body(errors.explain(error, self._ids), request_id),
            open_while=self._open_streams.track_inprogress(),
        )
