"""Pages of a session's events and of sessions, each event exactly once (ARCHITECTURE §4)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from services.session.domain import bounds
from services.session.domain.accept import not_found
from services.session.domain.event import InputClass
from services.session.domain.ports import ANY_TIME, InboxQuery, LogQuery, TimeRange

if TYPE_CHECKING:
    from drover.event.v1 import event_pb2
    from services.session.domain.bounds import Around
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionRef, SessionState

PAGE_BYTES: Final = 8 * 1024 * 1024
"""A page ends before it grows past this, but never before its first event."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a listing a page begins.

    The listing is the log above `floor` and up to `head`, then what waited in the inbox above
    `first` and up to `tail` when the first page was made; all are pinned, so that an event that
    moves meanwhile is seen exactly once. `in_inbox` says in which part the page begins and `at` the
    last position seen there.
    """

    floor: int
    head: int
    first: int
    tail: int
    in_inbox: bool
    at: int

    @property
    def untouched(self) -> bool:
        """Whether nothing was seen yet of the second part of the listing."""
        return self.at == (self.first if self.in_inbox else self.head + 1)


@dataclass(frozen=True, slots=True)
class EventsQuery:
    """Which events, in which order, and how many. Positions bound the log; see GetEvents."""

    limit: int
    descending: bool = False
    types: tuple[str, ...] = ()
    thread_id: str | None = None
    times: TimeRange = ANY_TIME
    after_seq: int = 0
    before_seq: int | None = None
    around: Around | None = None
    max_bytes: int = PAGE_BYTES

    @property
    def log_only(self) -> bool:
        """Whether what waits in the inbox is left out: it has neither position nor time."""
        return bool(self.times) or self.before_seq is not None or self.around is not None


@dataclass(frozen=True, slots=True)
class EventsPage:
    """A page, and where the next one begins."""

    events: list[event_pb2.Event]
    next: Place | None


def list_events(
    tx: Transaction, ref: SessionRef, query: EventsQuery, place: Place | None
) -> EventsPage:
    """A page of a session's events: its log, then its inbox; the reverse when descending.

    It may hold fewer events than there is room for, even none, before the listing ends. Raises
    NOT_FOUND, and INVALID_ARGUMENT for a place in the log that there is not.
    """
    state = tx.state(ref)
    if state is None:
        raise not_found(ref)
    threads = _threads(tx, state, query.thread_id)
    pager = _Pager(tx, ref.session_id, query, threads)
    place = place or begin(tx, state, query, threads)
    events, following = pager.part(place, query.limit, query.max_bytes)
    if following is None or not following.untouched:
        return EventsPage(events, following)
    # The page goes on in the next part, or at least sees whether there is anything in it: a last,
    # empty page would be a nuisance.
    used = sum(event.ByteSize() for event in events)
    room = query.limit - len(events)
    rest, beyond = pager.part(following, max(1, room), max(1, query.max_bytes - used))
    fits = used + sum(event.ByteSize() for event in rest) <= query.max_bytes
    if not rest or (room and (fits or not events)):
        return EventsPage(events + rest, beyond)
    return EventsPage(events, following)


def thread_not_found(thread_id: str) -> DroverError:
    """The refusal of a thread that the session does not have."""
    return DroverError(Reason.NOT_FOUND, f"thread {thread_id} not found")


def _threads(tx: Transaction, state: SessionState, thread_id: str | None) -> tuple[str, ...]:
    """What the events of a thread have as their `thread_id`."""
    if thread_id is None:
        return ()
    if thread_id == state.primary_thread_id:
        return "", thread_id
    if not any(thread.id == thread_id for thread in tx.threads(state.id)):
        raise thread_not_found(thread_id)
    return (thread_id,)


def begin(
    tx: Transaction, state: SessionState, query: EventsQuery, threads: tuple[str, ...] = ()
) -> Place:
    """Where the listing of a query begins. Raises as `list_events`."""
    floor, upto = query.after_seq, state.head_seq
    if query.before_seq is not None:
        upto = min(upto, query.before_seq - 1)
    if query.times.low is not None:
        floor = max(floor, tx.first_at(state.id, state.head_seq, query.times.low) - 1)
    if query.times.high is not None:
        upto = min(upto, tx.first_at(state.id, state.head_seq, query.times.high + 1) - 1)
    if query.around is not None:
        match = LogQuery(0, 0, 0, 0, types=query.types, threads=threads)
        floor, upto = bounds.around(tx, state, match, query.around)
    # The primary thread's inbox is the session's, and no other thread has one.
    waits = not query.log_only and len(threads) != 1 and state.waiting.total
    oldest = tx.waiting(state.id, tuple(InputClass), 1) if waits else []
    first = oldest[0].position - 1 if oldest else state.inbox_tail
    place = Place(floor, upto, first, state.inbox_tail, in_inbox=False, at=floor)
    if not query.descending:
        return place
    if oldest:
        return dataclasses.replace(place, in_inbox=True, at=state.inbox_tail + 1)
    return dataclasses.replace(place, at=upto + 1)


@dataclass(frozen=True, slots=True)
class _Pager:
    tx: Transaction
    session_id: str
    query: EventsQuery
    threads: tuple[str, ...]

    def part(
        self, place: Place, room: int, max_bytes: int
    ) -> tuple[list[event_pb2.Event], Place | None]:
        """What a page gets from the part of the listing where it is, and where it goes on."""
        part = self._inbox_part if place.in_inbox else self._log_part
        return part(place, room, max_bytes)

    def _log_part(
        self, place: Place, room: int, max_bytes: int
    ) -> tuple[list[event_pb2.Event], Place | None]:
        back = self.query.descending
        after, upto = (place.floor, place.at - 1) if back else (place.at, place.head)
        query = bounds.window(
            LogQuery(after, upto, room, max_bytes, back, self.query.types, self.threads)
        )
        events, more = self.tx.log(self.session_id, query)
        if more:
            return events, dataclasses.replace(place, at=events[-1].seq)
        if (query.after, query.upto) != (after, upto):
            return events, dataclasses.replace(place, at=query.after + 1 if back else query.upto)
        if back or place.first == place.tail:
            return events, None
        return events, dataclasses.replace(place, in_inbox=True, at=place.first)

    def _inbox_part(
        self, place: Place, room: int, max_bytes: int
    ) -> tuple[list[event_pb2.Event], Place | None]:
        back = self.query.descending
        after, upto = (place.first, place.at - 1) if back else (place.at, place.tail)
        entries, more = self.tx.inbox(
            self.session_id,
            InboxQuery(place.head, after, upto, room, max_bytes, back, self.query.types),
        )
        events = [entry.event for entry in entries]
        if more:
            return events, dataclasses.replace(place, at=entries[-1].position)
        if not back:
            return events, None
        return events, dataclasses.replace(place, in_inbox=False, at=place.head + 1)
