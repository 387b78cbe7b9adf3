"""The statement that finds sessions which do not get on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Integer, bindparam, exists, select

from services.session.domain.ports import CallState, Stalled
from services.session.domain.session import SessionRef, Status
from services.session.store.tables import calls, events, sessions

if TYPE_CHECKING:
    from sqlalchemy import Connection

# Of all sessions only those are looked at that need a brain: they have an index.
_STALLED = (
    select(
        sessions.c.workspace_id,
        sessions.c.id,
        sessions.c.status,
        sessions.c.head_at,
        sessions.c.running_since,
        sessions.c.head_seq,
        select(events.c.type)
        .where(events.c.session_id == sessions.c.id, events.c.seq == sessions.c.head_seq)
        .scalar_subquery(),
        sessions.c.lease_expires_at,
        sessions.c.holder,
        sessions.c.generation,
        exists().where(calls.c.session_id == sessions.c.id, calls.c.state != int(CallState.CLOSED)),
    )
    .where(sessions.c.needs_brain, sessions.c.head_at <= bindparam("before"))
    .order_by(sessions.c.updated_at)
    .limit(bindparam("most", type_=Integer))
)
_OF_A_WORKSPACE = _STALLED.where(sessions.c.workspace_id == bindparam("workspace"))


def find(
    connection: Connection, now: int, before: int, limit: int, workspace_id: str | None = None
) -> list[Stalled]:
    """Sessions that need a brain and whose log has not grown since `before`."""
    told: dict[str, int | str] = {"before": before, "most": limit}
    if workspace_id is None:
        rows = connection.execute(_STALLED, told)
    else:
        rows = connection.execute(_OF_A_WORKSPACE, told | {"workspace": workspace_id})
    return [
        Stalled(
            SessionRef(workspace, session_id),
            since=None if status == Status.IDLE else max(head_at, running_since or 0),
            head_seq=head_seq,
            last_type=last_type or "",
            held=expires_at is not None and expires_at > now,
            holder=holder,
            generation=generation,
            calling=bool(calling),
        )
        for (
            workspace,
            session_id,
            status,
            head_at,
            running_since,
            head_seq,
            last_type,
            expires_at,
            holder,
            generation,
            calling,
        ) in rows
    ]
