"""Statements on the files of sessions that must be deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Integer, and_, bindparam, delete, insert, select, update

from services.session.domain.file_ports import FileRelease
from services.session.domain.session import SessionRef
from services.session.store.tables import file_releases

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

FileReleaseRow = tuple[SessionRef, str, bool, int]
"""A session, its file, whether the deletion is only foreseen, and when."""

_of = file_releases.c
_INSERT = insert(file_releases)
_FORESEEN = and_(
    _of.session_id == bindparam("session"),
    _of.workspace_id == bindparam("workspace"),
    _of.file_id == bindparam("file"),
    _of.foreseen,
)
_WITHDRAW = delete(file_releases).where(_FORESEEN)
_HASTEN = update(file_releases).where(_FORESEEN).values(due_at=bindparam("due"))
_DUE = (
    select(_of.id, _of.workspace_id, _of.session_id, _of.file_id, _of.attempts)
    .where(_of.due_at <= bindparam("now"))
    .order_by(_of.due_at, _of.id)
    .limit(bindparam("most", type_=Integer))
    .with_for_update(skip_locked=True)
)
_NAMED = _of.id == bindparam("release")
_DELETE = delete(file_releases).where(_NAMED)
_LEASE = update(file_releases).where(_NAMED).values(due_at=bindparam("due"), foreseen=False)
_POSTPONE = (
    update(file_releases)
    .where(_NAMED)
    .values(attempts=file_releases.c.attempts + 1, due_at=bindparam("due"))
)


def add(connection: Connection, new: Iterable[FileReleaseRow]) -> None:
    """Notes files that must be deleted."""
    connection.execute(
        _INSERT,
        [
            {
                "workspace_id": ref.workspace_id,
                "session_id": ref.session_id,
                "file_id": file_id,
                "foreseen": foreseen,
                "attempts": 0,
                "due_at": due_at,
            }
            for ref, file_id, foreseen, due_at in new
        ],
    )


def withdraw(connection: Connection, ref: SessionRef, file_id: str) -> bool:
    """Strikes off a deletion that was foreseen; whether it could be."""
    return bool(connection.execute(_WITHDRAW, _named(ref, file_id)).rowcount)


def hasten(connection: Connection, ref: SessionRef, file_id: str, now: int) -> bool:
    """Has a deletion that was foreseen come due; whether there is one."""
    named = _named(ref, file_id) | {"due": now}
    return bool(connection.execute(_HASTEN, named).rowcount)


def lease(connection: Connection, now: int, limit: int, until: int) -> list[FileRelease]:
    """Deletions whose time has come and that nobody else leases; they come due again at `until`."""
    due = [
        FileRelease(row[0], SessionRef(row[1], row[2]), row[3], row[4])
        for row in connection.execute(_DUE, {"now": now, "most": limit})
    ]
    if due:
        connection.execute(_LEASE, [{"release": one.id, "due": until} for one in due])
    return due


def finish(connection: Connection, release_ids: Iterable[int]) -> None:
    """Strikes deletions off."""
    connection.execute(_DELETE, [{"release": release_id} for release_id in release_ids])


def postpone(connection: Connection, release_id: int, due_at: int) -> None:
    """Has a deletion tried again at its time."""
    connection.execute(_POSTPONE, {"release": release_id, "due": due_at})


def _named(ref: SessionRef, file_id: str) -> dict[str, object]:
    return {"session": ref.session_id, "workspace": ref.workspace_id, "file": file_id}
