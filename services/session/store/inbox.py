"""Statements on the inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    Integer,
    String,
    bindparam,
    column,
    func,
    insert,
    select,
    true,
    update,
)

from drover.event.v1 import event_pb2
from services.session.domain.event import InputClass
from services.session.domain.ports import InboxEntry
from services.session.store.pairs import SESSIONS, Pair, lookup, parameters
from services.session.store.tables import inbox
from storage.prepared import Prepared, PreparedAmong

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy import Connection

InboxRow = tuple[str, int, str, int, str, int | None, bytes]
"""An event that waits, as it is stored: the columns of its table in their order."""

Waiting = tuple[int, int, str, bytes]
"""Of an event that waits: its position, class, type and body."""

_INSERT = Prepared(insert(inbox))
_COLUMNS = inbox.c.position, inbox.c.kind, inbox.c.type, inbox.c.body
_WAITING = PreparedAmong(
    lambda kinds: (
        select(*_COLUMNS)
        .where(
            inbox.c.session_id == bindparam("session"),
            inbox.c.taken_seq.is_(None),
            inbox.c.kind.in_(kinds),
        )
        .order_by(inbox.c.position)
        .limit(bindparam("most", type_=Integer))
    )
)
_EACH = func.unnest(SESSIONS).table_valued(column("id", String)).render_derived(name="each")
_OLDEST = (
    select(*_COLUMNS)
    .where(inbox.c.session_id == _EACH.c.id, inbox.c.taken_seq.is_(None))
    .order_by(inbox.c.position)
    .limit(bindparam("most", type_=Integer))
    .lateral()
)
_FIRST = Prepared(select(_EACH.c.id, _OLDEST).select_from(_EACH.join(_OLDEST, true())))
_TAKE = Prepared(
    update(inbox)
    .where(inbox.c.session_id == bindparam("session"), inbox.c.position == bindparam("place"))
    .values(taken_seq=bindparam("seq"), body=b"")
)
_FIND = PreparedAmong(
    lambda ids: select(inbox.c.event_id, inbox.c.body).where(
        inbox.c.session_id == bindparam("session"),
        inbox.c.event_id.in_(ids),
        inbox.c.taken_seq.is_(None),
    )
)
_ID_PAIRS = Prepared(
    lookup(inbox.c.session_id, inbox.c.event_id, where=inbox.c.taken_seq.is_(None))
)


def stored(session_id: str, entry: InboxEntry) -> InboxRow:
    """An event that waits, as it is stored."""
    event = entry.event
    return (
        session_id,
        entry.position,
        event.id,
        int(entry.kind),
        entry.type,
        None,
        event.SerializeToString(),
    )


def restored(found: Waiting) -> InboxEntry:
    """An event that waits, as the domain knows it."""
    position, kind, event_type, body = found
    return InboxEntry(position, InputClass(kind), event_type, event_pb2.Event.FromString(body))


def add(connection: Connection, rows: Sequence[InboxRow]) -> None:
    """Adds events that wait."""
    _INSERT.execute_rows(connection, rows)


def waiting(
    connection: Connection, session_id: str, kinds: Collection[InputClass], limit: int
) -> list[InboxEntry]:
    """The oldest events of these classes that wait."""
    rows = _WAITING.execute(
        connection, {"session": session_id, "most": limit}, [int(kind) for kind in kinds]
    )
    return [restored((row[0], row[1], row[2], row[3])) for row in rows]


def first(
    connection: Connection, session_ids: Collection[str], limit: int
) -> dict[str, list[Waiting]]:
    """The oldest events that wait in each of several sessions. PostgreSQL only."""
    found: dict[str, list[Waiting]] = {session_id: [] for session_id in session_ids}
    for row in _FIRST.execute(connection, {"sessions": list(session_ids), "most": limit}):
        found[row[0]].append((row[1], row[2], row[3], row[4]))
    return found


def take(connection: Connection, taken: Iterable[tuple[str, int, int]]) -> None:
    """Marks positions as taken, each with the log position that it became."""
    _TAKE.execute_each(
        connection,
        [{"session": session_id, "place": place, "seq": seq} for session_id, place, seq in taken],
    )


def find(connection: Connection, session_id: str, event_ids: Collection[str]) -> dict[str, bytes]:
    """Events that wait, by id, as they are stored."""
    rows = _FIND.execute(connection, {"session": session_id}, list(event_ids))
    return {row[0]: row[1] for row in rows}


def id_pairs(connection: Connection, pairs: Collection[Pair]) -> set[Pair]:
    """Those of several sessions' ids that wait in their inboxes. PostgreSQL only."""
    return {(row[0], row[1]) for row in _ID_PAIRS.execute(connection, parameters(pairs))}
