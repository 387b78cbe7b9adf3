"""Statements on the inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Integer, and_, bindparam, func, insert, or_, select, update

from drover.event.v1 import event_pb2
from services.session.domain.event import InputClass
from services.session.domain.ports import InboxEntry
from services.session.store.events import within
from services.session.store.tables import events, inbox
from storage.prepared import Prepared, PreparedAmong

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from services.session.domain.ports import InboxQuery

_INSERT = Prepared(insert(inbox))
_WAITING = PreparedAmong(
    lambda kinds: (
        select(inbox.c.position, inbox.c.kind, inbox.c.type, inbox.c.body)
        .where(
            inbox.c.session_id == bindparam("session"),
            inbox.c.taken_seq.is_(None),
            inbox.c.kind.in_(kinds),
        )
        .order_by(inbox.c.position)
        .limit(bindparam("most", type_=Integer))
    )
)
_TAKE = Prepared(
    update(inbox)
    .where(inbox.c.session_id == bindparam("session"), inbox.c.position == bindparam("place"))
    .values(taken_seq=bindparam("seq"), body=b"")
)
_FIND = select(inbox.c.event_id, inbox.c.body).where(
    inbox.c.session_id == bindparam("session"),
    inbox.c.event_id.in_(bindparam("ids", expanding=True)),
    inbox.c.taken_seq.is_(None),
)


def enqueue(connection: Connection, session_id: str, entries: Sequence[InboxEntry]) -> None:
    """Adds events that wait."""
    _INSERT.execute_each(
        connection,
        [
            {
                "session_id": session_id,
                "position": entry.position,
                "event_id": entry.event.id,
                "kind": int(entry.kind),
                "type": entry.type,
                "taken_seq": None,
                "body": entry.event.SerializeToString(),
            }
            for entry in entries
        ],
    )


def waiting(
    connection: Connection, session_id: str, kinds: Collection[InputClass], limit: int
) -> list[InboxEntry]:
    """The oldest events of these classes that wait."""
    if not kinds:
        return []
    rows = _WAITING.execute(
        connection, {"session": session_id, "most": limit}, [int(kind) for kind in kinds]
    )
    return [
        InboxEntry(position, InputClass(kind), event_type, event_pb2.Event.FromString(body))
        for position, kind, event_type, body in rows
    ]


def take(connection: Connection, session_id: str, taken: Sequence[tuple[int, int]]) -> None:
    """Marks positions as taken, each with the log position that it became."""
    _TAKE.execute_each(
        connection, [{"session": session_id, "place": place, "seq": seq} for place, seq in taken]
    )


def find(
    connection: Connection, session_id: str, event_ids: Collection[str]
) -> dict[str, event_pb2.Event]:
    """Events that wait, by id."""
    rows = connection.execute(_FIND, {"session": session_id, "ids": list(event_ids)})
    return {event_id: event_pb2.Event.FromString(body) for event_id, body in rows}


def page(
    connection: Connection, session_id: str, query: InboxQuery
) -> tuple[list[InboxEntry], bool]:
    """A slice of what waited when the log's head was where the query says."""
    column = inbox.c
    moved = and_(events.c.session_id == column.session_id, events.c.seq == column.taken_seq)
    body = func.coalesce(events.c.body, column.body)
    statement = (
        select(body, column.position, column.kind, column.type, column.taken_seq)
        .select_from(inbox.outerjoin(events, moved))
        .where(
            column.session_id == session_id,
            column.position > query.after,
            column.position <= query.upto,
            or_(column.taken_seq.is_(None), column.taken_seq > query.head),
        )
    )
    if query.types:
        statement = statement.where(column.type.in_(list(query.types)))
    order = column.position.desc() if query.descending else column.position
    rows = connection.execute(statement.order_by(order).limit(query.limit + 1))
    kept, more = within(rows, query.limit, query.max_bytes)
    entries = [
        InboxEntry(
            position, InputClass(kind), event_type, event_pb2.Event.FromString(body), taken_seq
        )
        for body, position, kind, event_type, taken_seq in kept
    ]
    return entries, more
