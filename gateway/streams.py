"""The endpoints that stream events: from a request to a reader of its session's feed."""

from __future__ import annotations

import asyncio
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message_factory import GetMessageClass

from chassis.context import current_call
from drover.event.v1 import event_pb2
from drover.session.v1 import preview_pb2
from gateway import errors
from gateway.reader import EventStream
from gateway.sse import FrameCache
from gateway.subscription import Subscription
from gateway.view import View

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from prometheus_client import Gauge
    from starlette.requests import Request

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from gateway.auth import Caller
    from gateway.fanout import Fanout
    from gateway.subscription import EventsRequest, Resumption
    from gateway.transcode.encode import Encoders
    from gateway.transcode.routes import Route
    from gateway.upstream import Stream
    from gateway.watch import Watches

_CACHE_BYTES = 32 * 1024 * 1024


class StreamEndpoints:
    """Makes the endpoints of routes that stream events; those of one RPC share their frames."""

    def __init__(
        self,
        encoders: Encoders,
        fanout: Fanout,
        *,
        stall_seconds: float,
        resumption: Resumption,
        open_seconds: float,
        open_streams: Gauge,
        watches: Watches,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._encoders = encoders
        self._fanout = fanout
        self._stall_seconds = stall_seconds
        self._resumption = resumption
        self._open_seconds = open_seconds
        self._open_streams = open_streams
        self._watches = watches
        self._clock = clock
        self._ids = ids
        self._caches: dict[str, FrameCache] = {}
        self._opening: dict[Hashable, asyncio.Event] = {}

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

        def subscribe(message: EventsRequest, view: View) -> Subscription:
            return Subscription(
                call,
                copy(message),
                view,
                cache=cache,
                resumption=self._resumption,
                clock=self._clock,
                open_seconds=self._open_seconds,
            )

        async def serve(request: Request, path: Mapping[str, str]) -> EventStream:
            query = request.scope["query_string"]
            message: Any = route.request.decode(path, query, request.headers, b"")
            # A browser repeats the URL that it began with, and adds where it has got to.
            if last := request.headers.get("last-event-id", ""):
                message.after_event_id = last
            return await self._open(message, subscribe, request.state.caller)

        return serve

    async def _open(
        self,
        message: EventsRequest,
        subscribe: Callable[[EventsRequest, View], Subscription],
        caller: Caller,
    ) -> EventStream:
        """The response, once the subscription stands. Raises `DroverError`."""
        key, request_id = _key(message), current_call().request_id
        begin = message.after_event_id if message.HasField("after_event_id") else None
        if (first := self._opening.get(key)) is not None:
            await first.wait()  # what is asked for when the first one stands is shared at once
        subscription = subscribe(message, View(begin))
        if not self._fanout.can_share(key, subscription):
            await self._subscribe(key, subscription)
        return EventStream(
            self._fanout,
            key,
            subscription,
            partial(subscribe, message),
            stall_seconds=self._stall_seconds,
            explain=lambda error: errors.body(errors.explain(error, self._ids), request_id),
            open_while=self._open_streams.track_inprogress(),
            watched=partial(self._watches.over, caller),
        )

    async def _subscribe(self, key: Hashable, subscription: Subscription) -> None:
        """Opens a subscription. If it is the first for `key`, others wait for it."""
        if key in self._opening or key in self._fanout:
            await subscription.open()
            return
        self._opening[key] = stands = asyncio.Event()
        try:
            await subscription.open()
        finally:
            del self._opening[key]
            stands.set()


def _key(message: EventsRequest) -> Hashable:
    """What requests have in common whose readers see the same: all but where they begin."""
    wanted = frozenset(message.event_deltas)
    same = copy(message)
    same.ClearField("event_deltas")
    same.ClearField("after_event_id")
    return current_call().workspace_id, type(message), same.SerializeToString(), wanted
