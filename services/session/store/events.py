"""Statements on the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import bindparam, insert, select

from drover.event.v1 import event_pb2
from services.session.domain.log import micros_of
from services.session.store.tables import events
from storage.prepared import Prepared, PreparedAmong

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy import Connection

    from services.session.domain.ports import LogEntry, LogQuery

R = TypeVar("R", bound="Sequence[Any]")

_INSERT = Prepared(insert(events))
_IDS = PreparedAmong(
    lambda ids: select(events.c.event_id).where(
        events.c.session_id == bindparam("session"), events.c.event_id.in_(ids)
    )
)
_BODIES = select(events.c.event_id, events.c.body).where(
    events.c.session_id == bindparam("session"),
    events.c.event_id.in_(bindparam("ids", expanding=True)),
)


def append(connection: Connection, session_id: str, entries: Sequence[LogEntry]) -> None:
    """Adds stamped events."""
    _INSERT.execute_each(
        connection,
        [
            {
                "session_id": session_id,
                "seq": entry.event.seq,
                "event_id": entry.event.id,
                "type": entry.type,
                "thread_id": entry.event.thread_id,
                "processed_at": micros_of(entry.event),
                "body": entry.event.SerializeToString(),
            }
            for entry in entries
        ],
    )


def ids(connection: Connection, session_id: str, event_ids: Collection[str]) -> set[str]:
    """Those of the ids that the log has."""
    if not event_ids:
        return set()
    return {row[0] for row in _IDS.execute(connection, {"session": session_id}, list(event_ids))}


def find(
    connection: Connection, session_id: str, event_ids: Collection[str]
) -> dict[str, event_pb2.Event]:
    """Events of the log by id."""
    rows = connection.execute(_BODIES, {"session": session_id, "ids": list(event_ids)})
    return {event_id: event_pb2.Event.FromString(body) for event_id, body in rows}


def page(
    connection: Connection, session_id: str, query: LogQuery
) -> tuple[list[event_pb2.Event], bool]:
    """A slice of the log, and whether there is more of it."""
    column = events.c
    statement = select(column.body).where(
        column.session_id == session_id, column.seq > query.after, column.seq <= query.upto
    )
    if query.types:
        statement = statement.where(column.type.in_(list(query.types)))
    if query.times.low is not None:
        statement = statement.where(column.processed_at >= query.times.low)
    if query.times.high is not None:
        statement = statement.where(column.processed_at <= query.times.high)
    order = column.seq.desc() if query.descending else column.seq
    rows = connection.execute(statement.order_by(order).limit(query.limit + 1))
    kept, more = within(rows, query.limit, query.max_bytes)
    return [event_pb2.Event.FromString(row[0]) for row in kept], more


def within(rows: Iterable[R], limit: int, max_bytes: int) -> tuple[list[R], bool]:
    """The first rows that fit the limits, at least one, and whether any are left.

    The first column is the body, which counts against `max_bytes`.
    """
    taken: list[R] = []
    used = 0
    for row in rows:
        if taken and (len(taken) == limit or used + len(row[0]) > max_bytes):
            return taken, True
        taken.append(row)
        used += len(row[0])
    return taken, False
