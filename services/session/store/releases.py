"""Statements on the hands that must be released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Integer, bindparam, delete, insert, select, update

from services.session.domain.ports import HandRelease
from services.session.domain.session import SessionRef
from services.session.store.tables import releases

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

Release = tuple[SessionRef, int, bool, bool, int]
"""A session whose hand must go, its last lease, whether the workspace goes too, whether secrets do,
and when."""

_INSERT = insert(releases)
_DUE = (
    select(
        releases.c.id,
        releases.c.workspace_id,
        releases.c.session_id,
        releases.c.generation,
        releases.c.purge,
        releases.c.secrets,
        releases.c.attempts,
    )
    .where(releases.c.due_at <= bindparam("now"))
    .order_by(releases.c.id)
    .limit(bindparam("most", type_=Integer))
    .with_for_update(skip_locked=True)
)
_NAMED = releases.c.id == bindparam("release")
_DELETE = delete(releases).where(_NAMED)
_LEASE = update(releases).where(_NAMED).values(due_at=bindparam("due"))
_POSTPONE = (
    update(releases).where(_NAMED).values(attempts=releases.c.attempts + 1, due_at=bindparam("due"))
)


def add(connection: Connection, new: Iterable[Release]) -> None:
    """Notes hands that must go."""
    connection.execute(
        _INSERT,
        [
            {
                "workspace_id": ref.workspace_id,
                "session_id": ref.session_id,
                "generation": generation,
                "purge": purge,
                "secrets": secrets,
                "attempts": 0,
                "due_at": due_at,
            }
            for ref, generation, purge, secrets, due_at in new
        ],
    )


def lease(connection: Connection, now: int, limit: int, until: int) -> list[HandRelease]:
    """Releases whose time has come and that nobody else leases; they come due again at `until`."""
    due = [
        HandRelease(row[0], SessionRef(row[1], row[2]), *row[3:])
        for row in connection.execute(_DUE, {"now": now, "most": limit})
    ]
    if due:
        connection.execute(_LEASE, [{"release": one.id, "due": until} for one in due])
    return due


def finish(connection: Connection, release_ids: Iterable[int]) -> None:
    """Strikes releases off."""
    connection.execute(_DELETE, [{"release": release_id} for release_id in release_ids])


def postpone(connection: Connection, postponed: Iterable[tuple[int, int]]) -> None:
    """Has releases tried again, each at its time."""
    connection.execute(
        _POSTPONE, [{"release": release_id, "due": due_at} for release_id, due_at in postponed]
    )
