"""Statements on threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, insert, select, update

from services.session.domain.session import Activity, Status, ThreadState
from services.session.store.tables import threads
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

ThreadRow = Sequence[Any]
"""A thread as it is stored: the columns of its table in their order."""

_FIXED: Final = 4
"""How many columns never change: the first ones."""

_SELECT = Prepared(
    select(threads)
    .where(threads.c.session_id == bindparam("session"))
    .order_by(threads.c.parent_thread_id.is_not(None), threads.c.created_at, threads.c.id)
)
_INSERT = Prepared(insert(threads))
_UPDATE = Prepared(
    update(threads)
    .where(threads.c.id == bindparam("thread"))
    .values({column: bindparam(column.name) for column in list(threads.c)[_FIXED:]})
)


def of_session(connection: Connection, session_id: str) -> list[ThreadState]:
    """A session's threads, the primary one first."""
    return [
        ThreadState(
            id=row[0],
            session_id=row[1],
            parent_thread_id=row[2],
            created_at=row[3],
            updated_at=row[4],
            archived_at=row[5],
            activity=Activity(Status(row[6]), row[7], row[8], row[9]),
        )
        for row in _SELECT.execute(connection, {"session": session_id})
    ]


def stored(thread: ThreadState) -> ThreadRow:
    """A thread as it is stored."""
    activity = thread.activity
    return (
        thread.id,
        thread.session_id,
        thread.parent_thread_id,
        thread.created_at,
        thread.updated_at,
        thread.archived_at,
        int(activity.status),
        activity.running_since,
        activity.active_micros,
        activity.ended_at,
    )


def add(connection: Connection, new: Iterable[ThreadRow]) -> None:
    """Adds threads."""
    _INSERT.execute_rows(connection, list(new))


def save(connection: Connection, changed: Iterable[ThreadRow]) -> None:
    """Writes what of threads changes."""
    _UPDATE.execute_rows(connection, [(*row[_FIXED:], row[0]) for row in changed])
