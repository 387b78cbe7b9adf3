"""Statements on threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, insert, select, update

from services.session.domain.session import Activity, Status, ThreadState
from services.session.store.tables import threads
from storage.prepared import Prepared

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FIXED = {"id", "session_id", "parent_thread_id", "created_at"}

_SELECT = Prepared(
    select(threads)
    .where(threads.c.session_id == bindparam("session"))
    .order_by(threads.c.parent_thread_id.is_not(None), threads.c.created_at, threads.c.id)
)
_INSERT = insert(threads)
_UPDATE = Prepared(
    update(threads)
    .where(threads.c.id == bindparam("thread"))
    .values({column: bindparam(column.name) for column in threads.c if column.name not in _FIXED})
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


def add(connection: Connection, thread: ThreadState) -> None:
    """Adds a thread."""
    fixed = {
        "id": thread.id,
        "session_id": thread.session_id,
        "parent_thread_id": thread.parent_thread_id,
        "created_at": thread.created_at,
    }
    connection.execute(_INSERT, fixed | _values(thread))


def save(connection: Connection, thread: ThreadState) -> None:
    """Writes what of a thread changes."""
    _UPDATE.execute(connection, {"thread": thread.id} | _values(thread))


def _values(thread: ThreadState) -> dict[str, Any]:
    return {
        "updated_at": thread.updated_at,
        "archived_at": thread.archived_at,
        "status": int(thread.activity.status),
        "running_since": thread.activity.running_since,
        "active_micros": thread.activity.active_micros,
        "ended_at": thread.activity.ended_at,
    }
