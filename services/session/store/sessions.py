"""Statements on the state of sessions and on their large part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Integer,
    and_,
    bindparam,
    case,
    delete,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from drover.agent.v1 import agent_pb2
from drover.environment.v1 import environment_pb2
from services.session.domain.ports import Need
from services.session.domain.session import (
    Activity,
    SessionDetails,
    SessionRef,
    SessionState,
    Status,
    Stop,
    Waiting,
)
from services.session.store.tables import details, sessions
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from services.session.domain.ports import SessionQuery

_FIXED = {"id", "workspace_id", "agent_id", "agent_version", "primary_thread_id", "created_at"}

_SELECT = Prepared(
    select(sessions).where(
        sessions.c.id == bindparam("session_id"), sessions.c.workspace_id == bindparam("workspace")
    )
)
_INSERT = insert(sessions)
_UPDATE = Prepared(
    update(sessions)
    .where(sessions.c.id == bindparam("session_id"))
    .values({column: bindparam(column.name) for column in sessions.c if column.name not in _FIXED})
)
_DELETE = delete(sessions).where(sessions.c.id == bindparam("session_id"))
_NEEDS = (
    select(
        sessions.c.workspace_id, sessions.c.id, sessions.c.generation, sessions.c.lease_expires_at
    )
    .where(
        sessions.c.needs_brain,
        or_(
            sessions.c.lease_expires_at.is_(None),
            sessions.c.lease_expires_at <= bindparam("now"),
        ),
    )
    .order_by(sessions.c.updated_at)
    .limit(bindparam("most", type_=Integer))
)
# `SessionState.status`, as an expression.
_SHOWN = case(
    (and_(sessions.c.needs_brain, sessions.c.status == int(Status.IDLE)), int(Status.RUNNING)),
    else_=sessions.c.status,
)

_SELECT_DETAILS = Prepared(select(details).where(details.c.session_id == bindparam("session")))
_INSERT_DETAILS = insert(details)
_UPDATE_DETAILS = (
    update(details)
    .where(details.c.session_id == bindparam("session"))
    .values({column: bindparam(column.name) for column in details.c if column.name != "session_id"})
)


def get(connection: Connection, ref: SessionRef) -> SessionState | None:
    """A session's state."""
    rows = _SELECT.execute(
        connection, {"session_id": ref.session_id, "workspace": ref.workspace_id}
    )
    return _state(rows[0]) if rows else None


def add(connection: Connection, state: SessionState, large: SessionDetails) -> None:
    """Adds a session."""
    fixed = {
        "id": state.id,
        "workspace_id": state.workspace_id,
        "agent_id": state.agent_id,
        "agent_version": state.agent_version,
        "primary_thread_id": state.primary_thread_id,
        "created_at": state.created_at,
    }
    connection.execute(_INSERT, fixed | _values(state))
    connection.execute(_INSERT_DETAILS, {"session_id": state.id} | _details_values(large))


def save(connection: Connection, state: SessionState) -> None:
    """Writes what of a state changes."""
    _UPDATE.execute(connection, {"session_id": state.id} | _values(state))


def remove(connection: Connection, session_id: str) -> None:
    """Removes a session; all that belongs to it goes by its foreign key."""
    connection.execute(_DELETE, {"session_id": session_id})


def needs(connection: Connection, now: int, limit: int) -> list[Need]:
    """Sessions that need a brain and have no live lease."""
    rows = connection.execute(_NEEDS, {"now": now, "most": limit})
    return [
        Need(SessionRef(workspace, session_id), generation, expires_at is not None)
        for workspace, session_id, generation, expires_at in rows
    ]


def get_details(connection: Connection, session_id: str) -> SessionDetails:
    """The large part of a session."""
    return _details(_SELECT_DETAILS.execute(connection, {"session": session_id})[0])


def save_details(connection: Connection, session_id: str, large: SessionDetails) -> None:
    """Writes the large part of a session."""
    connection.execute(_UPDATE_DETAILS, {"session": session_id} | _details_values(large))


def page(connection: Connection, query: SessionQuery) -> list[tuple[SessionState, SessionDetails]]:
    """A page of sessions by creation time and id."""
    column = sessions.c
    statement = (
        select(sessions, details)
        .join(details, details.c.session_id == column.id)
        .where(column.workspace_id == query.workspace_id)
        .limit(query.limit)
    )
    if query.descending:
        statement = statement.order_by(column.created_at.desc(), column.id.desc())
    else:
        statement = statement.order_by(column.created_at, column.id)
    if query.key is not None:
        place = tuple_(column.created_at, column.id)
        here = tuple_(*query.key)
        statement = statement.where(place < here if query.descending else place > here)
    if query.agent_id is not None:
        statement = statement.where(column.agent_id == query.agent_id)
    if query.agent_version is not None:
        statement = statement.where(column.agent_version == query.agent_version)
    if query.created.low is not None:
        statement = statement.where(column.created_at >= query.created.low)
    if query.created.high is not None:
        statement = statement.where(column.created_at <= query.created.high)
    if not query.include_archived:
        statement = statement.where(column.archived_at.is_(None))
    if query.statuses:
        statement = statement.where(_SHOWN.in_([int(one) for one in query.statuses]))
    width = len(sessions.c)
    return [(_state(row[:width]), _details(row[width:])) for row in connection.execute(statement)]


def _state(row: Sequence[Any]) -> SessionState:
    return SessionState(
        id=row[0],
        workspace_id=row[1],
        agent_id=row[2],
        agent_version=row[3],
        primary_thread_id=row[4],
        created_at=row[5],
        updated_at=row[6],
        archived_at=row[7],
        activity=Activity(Status(row[8]), row[9], row[10], row[11]),
        stop=Stop(row[12]),
        head_seq=row[13],
        head_at=row[14],
        inbox_tail=row[15],
        waiting=Waiting(row[16], row[17], row[18]),
        unanswered=row[19],
        needs_brain=bool(row[20]),
        generation=row[21],
        holder=row[22],
        lease_expires_at=row[23],
        usage=row[24],
    )


def _values(state: SessionState) -> dict[str, Any]:
    activity, waiting = state.activity, state.waiting
    return {
        "updated_at": state.updated_at,
        "archived_at": state.archived_at,
        "status": int(activity.status),
        "running_since": activity.running_since,
        "active_micros": activity.active_micros,
        "ended_at": activity.ended_at,
        "stop": int(state.stop),
        "head_seq": state.head_seq,
        "head_at": state.head_at,
        "inbox_tail": state.inbox_tail,
        "waiting_interrupts": waiting.interrupts,
        "waiting_confirmations": waiting.confirmations,
        "waiting_messages": waiting.messages,
        "unanswered": state.unanswered,
        "needs_brain": state.needs_brain,
        "generation": state.generation,
        "holder": state.holder,
        "lease_expires_at": state.lease_expires_at,
        "usage": state.usage,
    }


def _details(row: Sequence[Any]) -> SessionDetails:
    _, environment_id, title, metadata, agent, environment = row
    return SessionDetails(
        environment_id=environment_id,
        agent=agent_pb2.SessionAgent.FromString(agent),
        environment=environment_pb2.EnvironmentConfig.FromString(environment),
        title=title,
        metadata=json.loads(metadata),
    )


def _details_values(large: SessionDetails) -> dict[str, Any]:
    return {
        "environment_id": large.environment_id,
        "title": large.title,
        "metadata": json.dumps(large.metadata),
        "agent": large.agent.SerializeToString(),
        "environment": large.environment.SerializeToString(),
    }
