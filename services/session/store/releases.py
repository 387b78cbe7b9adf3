"""Statements on the hands that must be released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Integer, bindparam, delete, insert, select, update

from services.session.domain.ports import HandRelease
from services.session.domain.session import SessionRef
from services.session.store.tables import releases

if TYPE_CHECKING:
    from sqlalchemy import Connection

_INSERT = insert(releases)
_DUE = (
    select(
        releases.c.id,
        releases.c.workspace_id,
        releases.c.session_id,
        releases.c.purge,
        releases.c.attempts,
    )
    .where(releases.c.due_at <= bindparam("now"))
    .order_by(releases.c.id)
    .limit(bindparam("most", type_=Integer))
)
_DELETE = delete(releases).where(releases.c.id == bindparam("release"))
_POSTPONE = (
    update(releases)
    .where(releases.c.id == bindparam("release"))
    .values(attempts=releases.c.attempts + 1, due_at=bindparam("due"))
)


def add(connection: Connection, ref: SessionRef, now: int, *, purge: bool) -> None:
    """Notes a hand that must go."""
    connection.execute(
        _INSERT,
        {
            "workspace_id": ref.workspace_id,
            "session_id": ref.session_id,
            "purge": purge,
            "attempts": 0,
            "due_at": now,
        },
    )


def due(connection: Connection, now: int, limit: int) -> list[HandRelease]:
    """Releases whose time has come."""
    return [
        HandRelease(release_id, SessionRef(workspace, session), purge, attempts)
        for release_id, workspace, session, purge, attempts in connection.execute(
            _DUE, {"now": now, "most": limit}
        )
    ]


def finish(connection: Connection, release_id: int) -> None:
    """Strikes a release off."""
    connection.execute(_DELETE, {"release": release_id})


def postpone(connection: Connection, release_id: int, due_at: int) -> None:
    """Has a release tried again."""
    connection.execute(_POSTPONE, {"release": release_id, "due": due_at})
