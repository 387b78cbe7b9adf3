"""Statements on work items, and on those who poll for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Integer,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)

from services.session.domain.session import SessionRef
from services.session.domain.work import WorkItem, WorkState
from services.session.domain.work_ports import WorkStats
from services.session.store.tables import work_items, work_pollers
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import ColumnElement, Connection

    from services.session.domain.work_ports import Queue

WorkRow = Sequence[Any]
"""An item as it is stored: the columns in their order."""

_of = work_items.c
# Written out, so that the indexes that are of these rows alone are used.
_QUEUED = _of.state == literal_column(str(int(WorkState.QUEUED)))
_LIVE = _of.state < literal_column(str(int(WorkState.STOPPED)))

_FIXED = 4
"""How many columns never change: the first ones."""

_INSERT = Prepared(insert(work_items))
_UPDATE = Prepared(
    update(work_items)
    .where(_of.id == bindparam("work_id"))
    .values({column: bindparam(column.name) for column in list(_of)[_FIXED:]})
)
_BY_ID = Prepared(select(work_items).where(_of.id == bindparam("work_id")))
_BY_TOKEN = Prepared(select(work_items).where(_of.token_digest == bindparam("digest")))
_OF_SESSION = Prepared(select(work_items).where(_of.session_id == bindparam("session"), _LIVE))
_REMOVE = delete(work_items).where(_of.session_id == bindparam("session"))
_OF_QUEUE: tuple[ColumnElement[bool], ...] = (
    _of.environment_id == bindparam("environment"),
    _of.workspace_id == bindparam("workspace"),
)
_WAITING = Prepared(
    select(work_items)
    .where(
        *_OF_QUEUE,
        _QUEUED,
        or_(_of.handed_at.is_(None), _of.handed_at <= bindparam("before")),
        _of.free_at <= bindparam("now"),
    )
    .order_by(_of.queued_at, _of.id)
    .limit(bindparam("most", type_=Integer))
)
_LAPSED = (
    select(work_items)
    .where(_of.lease_expires_at <= bindparam("now"))
    .order_by(_of.lease_expires_at)
    .limit(bindparam("most", type_=Integer))
)
_STATS = select(
    func.count(case((_of.handed_at.is_(None), 1))),
    func.count(_of.handed_at),
    func.min(_of.queued_at),
).where(_QUEUED)
# `seen_at` grows only, whichever replica was the last to write.
_NOTE = Prepared(
    text(
        "INSERT INTO work_pollers (environment_id, worker_id, seen_at)"
        " VALUES (:environment, :worker, :now)"
        " ON CONFLICT (environment_id, worker_id) DO UPDATE SET seen_at = excluded.seen_at"
        " WHERE work_pollers.seen_at < excluded.seen_at"
    )
)
_POLLERS = (
    select(func.count())
    .select_from(work_pollers)
    .where(
        work_pollers.c.environment_id == bindparam("environment"),
        work_pollers.c.seen_at > bindparam("since"),
    )
)
_FORGET = delete(work_pollers).where(work_pollers.c.seen_at < bindparam("before"))


def add(connection: Connection, new: Iterable[WorkRow]) -> None:
    """Adds items."""
    _INSERT.execute_rows(connection, list(new))


def save(connection: Connection, changed: Iterable[WorkRow]) -> None:
    """Writes what of items changes."""
    _UPDATE.execute_rows(connection, [(*row[_FIXED:], row[0]) for row in changed])


def by_id(connection: Connection, work_id: str) -> WorkItem | None:
    """An item."""
    return _one(_BY_ID.execute(connection, {"work_id": work_id}))


def by_token(connection: Connection, digest: bytes) -> WorkItem | None:
    """The item that a token is of."""
    return _one(_BY_TOKEN.execute(connection, {"digest": digest}))


def live(connection: Connection, session_id: str) -> WorkItem | None:
    """The item of a session that has not stopped."""
    return _one(_OF_SESSION.execute(connection, {"session": session_id}))


def remove(connection: Connection, session_id: str) -> None:
    """Removes the items of a session."""
    connection.execute(_REMOVE, {"session": session_id})


def waiting(
    connection: Connection, queue: Queue, before: int, limit: int, now: int
) -> list[WorkItem]:
    """What waits and was not handed out lately, the longest first."""
    named = _named(queue) | {"before": before, "most": limit, "now": now}
    return [restored(row) for row in _WAITING.execute(connection, named)]


def lapsed(connection: Connection, now: int, limit: int) -> list[WorkItem]:
    """Items whose lease has run out."""
    rows = connection.execute(_LAPSED, {"now": now, "most": limit})
    return [restored(row) for row in rows]


def page(
    connection: Connection, queue: Queue, limit: int, key: tuple[int, str] | None
) -> list[WorkItem]:
    """A page of items, the newest first."""
    statement = (
        select(work_items)
        .where(*_OF_QUEUE)
        .order_by(_of.created_at.desc(), _of.id.desc())
        .limit(limit)
    )
    if key is not None:
        statement = statement.where(tuple_(_of.created_at, _of.id) < tuple_(*key))
    return [restored(row) for row in connection.execute(statement, _named(queue))]


def stats(connection: Connection, queue: Queue | None) -> WorkStats:
    """What waits in a queue, or in all."""
    statement = _STATS if queue is None else _STATS.where(and_(*_OF_QUEUE))
    found = connection.execute(statement, _named(queue) if queue else {}).one()
    return WorkStats(*found)


def note_poller(connection: Connection, environment_id: str, worker_id: str, now: int) -> None:
    """Takes down that a worker polls."""
    each = [{"environment": environment_id, "worker": worker_id, "now": now}]
    _NOTE.execute_each(connection, each)


def pollers(connection: Connection, environment_id: str, since: int) -> int:
    """How many workers have polled since then."""
    found = connection.execute(_POLLERS, {"environment": environment_id, "since": since})
    return int(found.scalar_one())


def forget_pollers(connection: Connection, before: int) -> None:
    """Removes those who have not polled since."""
    connection.execute(_FORGET, {"before": before})


def _named(queue: Queue) -> dict[str, Any]:
    return {"environment": queue.environment_id, "workspace": queue.workspace_id}


def _one(rows: Sequence[WorkRow]) -> WorkItem | None:
    return restored(rows[0]) if rows else None


def stored(item: WorkItem) -> WorkRow:
    """An item as it is stored."""
    return (
        item.id,
        item.session.session_id,
        item.session.workspace_id,
        item.environment_id,
        int(item.state),
        item.created_at,
        item.queued_at,
        item.handed_out,
        item.handed_at,
        item.acknowledged_at,
        item.started_at,
        item.heartbeat_at,
        item.stop_requested_at,
        item.stopped_at,
        item.lease_expires_at,
        item.ttl_seconds,
        item.token,
        item.worker_id,
        json.dumps(item.metadata),
        item.setbacks,
        item.seen_seq,
        item.free_at,
    )


def restored(row: WorkRow) -> WorkItem:
    """An item as the domain knows it."""
    return WorkItem(
        id=row[0],
        session=SessionRef(row[2], row[1]),
        environment_id=row[3],
        state=WorkState(row[4]),
        created_at=row[5],
        queued_at=row[6],
        handed_out=row[7],
        handed_at=row[8],
        acknowledged_at=row[9],
        started_at=row[10],
        heartbeat_at=row[11],
        stop_requested_at=row[12],
        stopped_at=row[13],
        lease_expires_at=row[14],
        ttl_seconds=row[15],
        token=row[16],
        worker_id=row[17],
        metadata=json.loads(row[18]),
        setbacks=row[19],
        seen_seq=row[20],
        free_at=row[21],
    )
