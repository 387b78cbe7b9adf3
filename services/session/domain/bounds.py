"""Which positions of a log a query is about: events become positions before it is read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from services.session.domain.admission import refuse
from services.session.domain.ports import LogQuery

if TYPE_CHECKING:
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionState

SCAN: Final = 5_000
"""Positions that are read at a time where no index tells which of them match."""


@dataclass(frozen=True, slots=True)
class Around:
    """An event, and how many of its neighbours before and behind it."""

    event_id: str
    before: int
    after: int


def around(tx: Transaction, state: SessionState, match: LogQuery, near: Around) -> tuple[int, int]:
    """The positions above the first and up to the second, which hold an event and its neighbours.

    Those are the nearest that `match` types and threads. Raises INVALID_ARGUMENT for an event that
    has no place in the log.
    """
    event = tx.find(state.id, [near.event_id]).get(near.event_id)
    if event is None:
        raise refuse("around_event_id", "the session's log has no such event")
    if not event.seq:
        raise refuse("around_event_id", "the event waits in the inbox: it has no place in the log")
    if not match.types and not match.threads:
        return max(0, event.seq - 1 - near.before), min(state.head_seq, event.seq + near.after)
    earlier, later = event.seq, event.seq
    if near.before:
        back = dataclasses.replace(match, upto=earlier - 1, limit=near.before, descending=True)
        earlier = _nearest(tx, state.id, back)
    if near.after:
        ahead = dataclasses.replace(match, after=later, upto=state.head_seq, limit=near.after)
        later = _nearest(tx, state.id, ahead)
    return earlier - 1, later


def window(query: LogQuery) -> LogQuery:
    """As much of a query as is answered at a time."""
    if query.exact or query.upto - query.after <= SCAN:
        return query
    if query.descending:
        return dataclasses.replace(query, after=query.upto - SCAN)
    return dataclasses.replace(query, upto=query.after + SCAN)


def _nearest(tx: Transaction, session_id: str, query: LogQuery) -> int:
    """The position of the last of `query.limit` events, or the query's far end."""
    missing = query.limit
    while query.after < query.upto:
        part = window(query)
        found = tx.positions(session_id, dataclasses.replace(part, limit=missing))
        missing -= len(found)
        if not missing:
            return found[-1]
        if query.descending:
            query = dataclasses.replace(query, upto=part.after)
        else:
            query = dataclasses.replace(query, after=part.upto)
    return query.after + 1 if query.descending else query.upto
