"""A subscription to a session's feed that outlives the session service.

The service may go away and come back: the subscription resumes behind the last event that it has
given, and who reads it does not notice.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from gateway.cancellation import cancellation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from chassis.clock import Clock
    from drover.session.v1 import session_service_pb2
    from gateway.sse import Frame, FrameCache
    from gateway.upstream import Stream
    from gateway.view import View

POSITION_KEY = "x-drover-last-event-id"
"""Initial metadata: id of the log's last event when the subscription began; empty without any."""

_REFUSAL_SECONDS = 0.03

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
    """What a session's feed tells behind `view`, which grows with it, or from now on.

    Nothing is asked of the service before it is opened.

    What has no stamp is missed while it is not `standing`. `since` is when it was first asked for,
    `asked` when it was last, `stood` when it was last known to stand, and `caught_up` when it had
    given all that the log held then.
    """

    def __init__(
        self,
        call: Stream,
        request: EventsRequest,
        view: View,
        *,
        cache: FrameCache,
        resumption: Resumption,
        clock: Clock,
        open_seconds: float,
    ) -> None:
        self._open_call = call
        self._request = request
        self._cache = cache
        self._resumption = resumption
        self._clock = clock
        self._open_seconds = open_seconds
        self._call: grpc.aio.UnaryStreamCall[Any, bytes] | None = None
        self.view = view
        # Until when breaks are one outage: a frame, or a subscription that lasted, ends it.
        self._give_up: float | None = None
        self._head: str | None = None
        self.standing = False
        self.since = self.asked = clock.monotonic()
        self.stood = self.caught_up = math.inf

    async def open(self) -> None:
        """Subscribes; whatever is committed from now on will be seen. Raises `DroverError`."""
        await self._subscribe(self._open_seconds)

    async def frames(self) -> AsyncGenerator[list[Frame], None]:
        """The frames to show, those of one message together. Opens what is not open yet.

        Raises `DroverError` when the feed cannot go on.
        """
        while True:
            try:
                if not self.standing:
                    await self.open()
                raw = await self._read()
            except DroverError as error:
                self.standing = False
                await self._resume(error)
                continue
            if raw is None:
                return
            self._give_up = None
            frames = [frame for frame in self._cache.frames(raw) if self.view.note(frame)]
            if self.caught_up == math.inf and any(frame.id == self._head for frame in frames):
                self.caught_up = self._clock.monotonic()
            if frames:
                yield frames

    def close(self) -> None:
        """Ends the subscription."""
        self.standing = False
        if self._call is not None:
            self._call.cancel()

    async def _subscribe(self, seconds: float, *, patient: bool = False) -> None:
        """Asks for what is behind the last event given, and waits until the subscription stands.

        If it is `patient` it waits for a connection, too, instead of failing without one.
        """
        self.asked = self._clock.monotonic()
        if self.view.position is not None:
            self._request.after_event_id = self.view.position
        call = self._call = self._open_call(self._request, wait_for_ready=patient)
        try:
            async with asyncio.timeout(seconds):
                metadata = dict(await call.initial_metadata())
                head = metadata.get(POSITION_KEY)
                self._head = None if head is None else str(head)
                if self._head is None and await _is_refused(call):
                    await call.read()  # raises what the call ended with
        except TimeoutError:
            call.cancel()
            raise DroverError(
                Reason.DEADLINE_EXCEEDED, "the session service did not answer in time"
            ) from None
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the session service") from error
        except asyncio.CancelledError as error:
            call.cancel()
            raise cancellation(error) from None
        self.standing, self.stood = True, self._clock.monotonic()
        if self.view.position is None:
            self.view.position = self._head
        self.caught_up = self.stood if self._head == self.view.position else math.inf

    async def _read(self) -> bytes | None:
        if self._call is None:
            return None
        try:
            raw = await self._call.read()
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the session service") from error
        except asyncio.CancelledError as error:
            raise cancellation(error) from None
        return raw if isinstance(raw, bytes) else None  # grpc.aio.EOF

    async def _resume(self, error: DroverError) -> None:
        """Subscribes again behind the last event given, or raises the error."""
        if not error.rule.retryable or self.view.position is None:
            raise error
        now, seconds = self._clock.monotonic(), self._resumption.seconds
        if self._give_up is None or now - self.stood > seconds:
            self._give_up = now + seconds
        delay = self._resumption.first
        while (left := self._give_up - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(delay, left))
            delay = min(2 * delay, self._resumption.most)
            left = max(0.0, self._give_up - self._clock.monotonic())
            try:
                await self._subscribe(left, patient=True)  # the channel alone knocks for all
            except DroverError as again:
                if not again.rule.retryable:
                    raise
            else:
                self.view.previewed.clear()  # a new subscription goes on with none
                return
        raise error


async def _is_refused(call: grpc.aio.UnaryStreamCall[Any, bytes]) -> bool:
    """Whether a call has ended with its initial metadata, and not well.

    gRPC reports metadata and status of a refusal one after the other, and neither says that the
    other will follow. A service that tells the position is not asked.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_REFUSAL_SECONDS):
            await call.code()
    return call.done() and await call.code() is not grpc.StatusCode.OK
