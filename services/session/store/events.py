"""Statements on the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, insert, select

from services.session.domain.log import micros_of
from services.session.store.pairs import Pair, lookup, parameters
from services.session.store.tables import events
from storage.prepared import Prepared, PreparedAmong

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from services.session.domain.ports import LogEntry

EventRow = tuple[str, int, str, str, str, int, bytes]
"""An event as it is stored: the columns of its table in their order."""

_INSERT = Prepared(insert(events))
_IDS = PreparedAmong(
    lambda ids: select(events.c.event_id).where(
        events.c.session_id == bindparam("session"), events.c.event_id.in_(ids)
    )
)
_ID_PAIRS = Prepared(lookup(events.c.session_id, events.c.event_id))
_BODIES = PreparedAmong(
    lambda ids: select(events.c.event_id, events.c.body).where(
        events.c.session_id == bindparam("session"), events.c.event_id.in_(ids)
    )
)


def stored(session_id: str, entry: LogEntry) -> EventRow:
    """A stamped event as it is stored."""
    event = entry.event
    return (
        session_id,
        event.seq,
        event.id,
        entry.type,
        event.thread_id,
        micros_of(event),
        event.SerializeToString(),
    )


def add(connection: Connection, rows: Sequence[EventRow]) -> None:
    """Adds stamped events."""
    _INSERT.execute_rows(connection, rows)


def ids(connection: Connection, session_id: str, event_ids: Collection[str]) -> set[str]:
    """Those of the ids that the log has."""
    return {row[0] for row in _IDS.execute(connection, {"session": session_id}, list(event_ids))}


def id_pairs(connection: Connection, pairs: Collection[Pair]) -> set[Pair]:
    """Those of several sessions' ids that their logs have. PostgreSQL only."""
    return {(row[0], row[1]) for row in _ID_PAIRS.execute(connection, parameters(pairs))}


def find(connection: Connection, session_id: str, event_ids: Collection[str]) -> dict[str, bytes]:
    """Events of the log by id, as they are stored."""
    rows = _BODIES.execute(connection, {"session": session_id}, list(event_ids))
    return {row[0]: row[1] for row in rows}
