"""Pages of a session's events and of sessions, each event exactly once (ARCHITECTURE §4)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from services.session.domain.accept import not_found
from services.session.domain.ports import ANY_TIME, InboxQuery, LogQuery, TimeRange

if TYPE_CHECKING:
    from drover.event.v1 import event_pb2
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionRef

PAGE_BYTES: Final = 8 * 1024 * 1024
"""A page ends before it grows past this, but never before its first event."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a listing a page begins.

    The listing is the log up to `head`, then what waited in the inbox up to `tail` when the first
    page was made; both are pinned, so that an event that moves meanwhile is seen exactly once.
    `in_inbox` says in which part the page begins and `at` the last position seen there.
    """

    head: int
    tail: int
    in_inbox: bool
    at: int

    @property
    def untouched(self) -> bool:
        """Whether nothing was seen yet of the second part of the listing."""
        return self.at == (0 if self.in_inbox else self.head + 1)


@dataclass(frozen=True, slots=True)
class EventsQuery:
    """Which events, in which order, and how many. Positions bound the log; see GetEvents."""

    limit: int
    descending: bool = False
    types: tuple[str, ...] = ()
    times: TimeRange = ANY_TIME
    after_seq: int = 0
    before_seq: int | None = None
    max_bytes: int = PAGE_BYTES

    @property
    def log_only(self) -> bool:
        """Whether what waits in the inbox is left out: it has neither position nor time."""
        return bool(self.times) or self.before_seq is not None


@dataclass(frozen=True, slots=True)
class EventsPage:
    """A page, and where the next one begins."""

    events: list[event_pb2.Event]
    next: Place | None


def list_events(
    tx: Transaction, ref: SessionRef, query: EventsQuery, place: Place | None
) -> EventsPage:
    """A page of a session's events: its log, then its inbox; the reverse when descending.

    Raises NOT_FOUND.
    """
    state = tx.state(ref)
    if state is None:
        raise not_found(ref)
    pager = _Pager(tx, ref.session_id, query)
    place = place or _start(query, state.head_seq, state.inbox_tail)
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


def _start(query: EventsQuery, head: int, tail: int) -> Place:
    upto = head if query.before_seq is None else min(head, query.before_seq - 1)
    if not query.descending:
        return Place(upto, tail, in_inbox=False, at=query.after_seq)
    if query.log_only:
        return Place(upto, tail, in_inbox=False, at=upto + 1)
    return Place(upto, tail, in_inbox=True, at=tail + 1)


@dataclass(frozen=True, slots=True)
class _Pager:
    tx: Transaction
    session_id: str
    query: EventsQuery

    def part(
        self, place: Place, room: int, max_bytes: int
    ) -> tuple[list[event_pb2.Event], Place | None]:
        """What a page gets from the part of the listing where it is, and where it goes on."""
        part = self._inbox_part if place.in_inbox else self._log_part
        return part(place, room, max_bytes)

    def _log_part(
        self, place: Place, room: int, max_bytes: int
    ) -> tuple[list[event_pb2.Event], Place | None]:
        query = self.query
        after, upto = (place.at, place.head)
        if query.descending:
            after, upto = query.after_seq, place.at - 1
        events, more = self.tx.log(
            self.session_id,
            LogQuery(after, upto, room, max_bytes, query.descending, query.types, query.times),
        )
        if more:
            return events, dataclasses.replace(place, at=events[-1].seq)
        if query.descending or query.log_only:
            return events, None
        return events, dataclasses.replace(place, in_inbox=True, at=0)

    def _inbox_part(
        self, place: Place, room: int, max_bytes: int
    ) -> tuple[list[event_pb2.Event], Place | None]:
        query = self.query
        after, upto = (0, place.at - 1) if query.descending else (place.at, place.tail)
        entries, more = self.tx.inbox(
            self.session_id,
            InboxQuery(place.head, after, upto, room, max_bytes, query.descending, query.types),
        )
        events = [entry.event for entry in entries]
        if more:
            return events, dataclasses.replace(place, at=entries[-1].position)
        if not query.descending:
            return events, None
        return events, dataclasses.replace(place, in_inbox=False, at=place.head + 1)
