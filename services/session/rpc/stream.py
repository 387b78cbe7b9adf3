"""Following a session from now, or from behind an event, without gap or repetition."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.domain.accept import not_found
from services.session.domain.admission import refuse
from services.session.domain.listing import thread_not_found
from services.session.domain.ports import InboxQuery, LogQuery
from services.session.feed import event_frame
from services.session.rpc.parts import Context, ref

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from drover.event.v1 import event_pb2
    from services.session.domain.ports import InboxEntry, Transaction
    from services.session.domain.session import SessionRef, SessionState
    from services.session.feed import Frame, Subscription
    from services.session.rpc.parts import Parts

    Send = Callable[[bytes], Awaitable[None]]

POSITION_KEY: Final = "x-drover-last-event-id"
"""Initial metadata: the id of the log's last event as the subscription begins."""

_PAGE_EVENTS: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024
_RESPONSE_BYTES: Final = 256 * 1024
"""What one message carries of several frames; a reader has to take it within its patience."""


class StreamRpc(SessionServiceServicer):
    """The part of the service that is followed live."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def StreamEvents(  # type: ignore[override]  # grpc.aio takes coroutines that write too
        self, request: pb.StreamEventsRequest, context: Context
    ) -> None:
        """Follows a session's log from where it is now, or from behind an event."""

        async def send(data: bytes) -> None:
            await context.write(pb.StreamEventsResponse.FromString(data))

        await self._follow(request, context, None, send)

    async def StreamThreadEvents(  # type: ignore[override]
        self, request: pb.StreamThreadEventsRequest, context: Context
    ) -> None:
        """Follows one thread, as StreamEvents."""

        async def send(data: bytes) -> None:
            await context.write(pb.StreamThreadEventsResponse.FromString(data))

        await self._follow(request, context, request.thread_id, send)

    async def _follow(
        self,
        request: pb.StreamEventsRequest | pb.StreamThreadEventsRequest,
        context: Context,
        thread_id: str | None,
        send: Send,
    ) -> None:
        session, feed = ref(request.session_id), self._parts.feed
        after = request.after_event_id if request.HasField("after_event_id") else None
        # First the subscription, then the position: whatever is committed in between is seen, and
        # its position tells whether it has been seen already.
        subscription = feed.subscribe(session.session_id, frozenset(request.event_deltas))
        try:
            state, position, last_id = await self._parts.store.read(
                lambda tx: _start(tx, session, thread_id, after)
            )
            feed.place(session.session_id, state.head_seq, state.inbox_tail)
            await context.send_initial_metadata(_told(last_id))
            start = position, state.inbox_tail
            follower = _Follower(self._parts, session, subscription, send, start)
            if position < state.head_seq:
                await follower.catch_up()
            if not state.ended:
                await follower.run()
        finally:
            feed.unsubscribe(session.session_id, subscription)


def _told(last_id: str) -> tuple[tuple[str, str], ...]:
    """The position as metadata, which holds visible ASCII only: an old log may have other ids."""
    told = last_id.isascii() and last_id.isprintable() and " " not in last_id
    return ((POSITION_KEY, last_id),) if told else ()


def _start(
    tx: Transaction, session: SessionRef, thread_id: str | None, after: str | None
) -> tuple[SessionState, int, str]:
    """The session, the position to begin behind, and the id of the log's last event."""
    state = tx.state(session)
    if state is None:
        raise not_found(session)
    # The session's own log is the primary thread's, and there is no other yet.
    if thread_id is not None and thread_id != state.primary_thread_id:
        raise thread_not_found(thread_id)
    last, _ = tx.log(state.id, LogQuery(state.head_seq - 1, state.head_seq, 1, 1))
    last_id = last[0].id if last else ""
    if not after:
        return state, (state.head_seq if after is None else 0), last_id
    event = tx.find(session.session_id, [after]).get(after)
    if event is None or not event.seq:
        raise refuse("after", "the session's log has no such event")
    return state, event.seq, last_id


@dataclass(slots=True)
class _Page:
    """What a subscriber has yet to be sent, up to `place` in the inbox, and whether there is more.

    What was taken from the inbox is in the log: the subscriber never sees it unstamped behind that.
    """

    logged: list[event_pb2.Event] = field(default_factory=list)
    waiting: list[InboxEntry] = field(default_factory=list)
    place: int = 0
    more: bool = False


class _Follower:
    """Sends one subscriber what it is due, in the order of the log.

    What is due at once goes in one message, within bounds: a message costs more than its frames.
    `start` are the positions of the log and of the inbox that the subscriber has got to.
    """

    def __init__(
        self,
        parts: Parts,
        session: SessionRef,
        subscription: Subscription,
        send: Send,
        start: tuple[int, int],
    ) -> None:
        self._parts = parts
        self._ref = session
        self._subscription = subscription
        self._send = send
        self._position, self._place = start
        self._due: list[Frame] = []
        self._due_bytes = 0
        self._last_id = ""

    async def run(self) -> None:
        """Follows until the session ends."""
        subscription = self._subscription
        while True:
            frames = await subscription.take()
            ended = subscription.ended
            if subscription.overflowed:
                subscription.overflowed = False
                await self.catch_up()
            for frame in frames:
                if frame.seq > self._position + 1 or frame.place > self._place + 1:
                    await self.catch_up()
                await self._add(frame)
            await self._deliver()
            if ended:
                return

    async def catch_up(self) -> None:
        """Sends what the log has beyond the subscriber's position, then what waits in the inbox."""
        more = True
        while more:
            page = await self._parts.store.read(self._page)
            for event in page.logged:
                self._subscription.end_previews(event)
                await self._add(event_frame(event))
            for entry in page.waiting:
                await self._add(event_frame(entry.event, entry.position))
            self._place = max(self._place, page.place)
            more = page.more
        await self._deliver()

    def _page(self, tx: Transaction) -> _Page:
        state = tx.state(self._ref)
        if state is None:
            return _Page()
        page = _Page()
        if state.head_seq > self._position:
            query = LogQuery(self._position, state.head_seq, _PAGE_EVENTS, _PAGE_BYTES)
            page.logged, page.more = tx.log(state.id, query)
        if not page.more and state.inbox_tail > self._place:
            unseen = InboxQuery(
                state.head_seq, self._place, state.inbox_tail, _PAGE_EVENTS, _PAGE_BYTES
            )
            page.waiting, page.more = tx.inbox(state.id, unseen)
            page.place = 0 if page.more else state.inbox_tail
        return page

    async def _add(self, frame: Frame) -> None:
        """Has a frame sent with those before it, unless it was seen already."""
        if frame.seq:
            if frame.seq <= self._position:
                return
            self._position = frame.seq
        elif frame.place:
            if frame.place <= self._place:
                return
            self._place = frame.place
        if self._due and self._due_bytes + len(frame.data) > _RESPONSE_BYTES:
            await self._deliver()
        self._due.append(frame)
        self._due_bytes += len(frame.data)

    async def _deliver(self) -> None:
        """Sends what is due."""
        if not self._due:
            return
        frames, self._due, self._due_bytes = self._due, [], 0
        try:
            async with asyncio.timeout(self._parts.stuck_seconds):
                await self._send(b"".join(frame.data for frame in frames))
        except TimeoutError:
            raise DroverError(
                Reason.RESOURCE_EXHAUSTED,
                "the reader took nothing for too long: go on behind the last event",
                last_event_id=self._last_id,
            ) from None
        self._last_id = next((frame.id for frame in reversed(frames) if frame.seq), self._last_id)
