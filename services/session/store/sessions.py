"""Statements on the state of sessions and on their large part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Integer,
    and_,
    any_,
    bindparam,
    case,
    delete,
    insert,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)

from drover.agent.v1 import agent_pb2
from drover.environment.v1 import environment_pb2
from drover.session.v1 import session_pb2
from services.session.domain.ports import Need, Peek
from services.session.domain.session import (
    Activity,
    Origin,
    SessionDetails,
    SessionRef,
    SessionState,
    Status,
    Stop,
    Waiting,
)
from services.session.store.pairs import SESSIONS
from services.session.store.tables import details, memory_stores, sessions
from storage.prepared import Prepared, PreparedAmong

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Connection

    from services.session.domain.ports import SessionQuery

SessionRow = Sequence[Any]
"""A session's state, or the large part of it, as it is stored: the columns in their order."""

NOBODYS: Final = "unfinished"
"""The workspace of sessions that are being made, or removed, piece by piece."""

AT_ONCE: Final = 1000
"""Events that are removed at once: with more of them all other writers would wait too long."""

WIDTH: Final = len(sessions.c)
_FIXED: Final = 6
"""How many columns never change: the first ones."""

_NOW = literal_column("CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)", BigInteger)
_SELECT = Prepared(select(sessions).where(sessions.c.id == bindparam("session_id")))
_SELECT_AT = Prepared(select(sessions, _NOW).where(sessions.c.id == bindparam("session_id")))
_TIME = Prepared(select(_NOW))
_EACH = select(sessions, _NOW).where(sessions.c.id == any_(SESSIONS)).order_by(sessions.c.id)
_LOCK = Prepared(_EACH.with_for_update(key_share=True))
_LOCK_FREE = Prepared(_EACH.with_for_update(key_share=True, skip_locked=True))
_EXISTING = Prepared(select(sessions.c.id).where(sessions.c.id == any_(SESSIONS)))
_INSERT = Prepared(insert(sessions))
_UPDATE = Prepared(
    update(sessions)
    .where(sessions.c.id == bindparam("session_id"))
    .values({column: bindparam(column.name) for column in list(sessions.c)[_FIXED:]})
)
# Without a time of change: nobody works on it, and so whoever looks for such sessions removes it.
_HIDE = (
    update(sessions)
    .where(sessions.c.id == bindparam("session_id"), sessions.c.head_seq > AT_ONCE)
    .values(workspace_id=NOBODYS, updated_at=0, needs_brain=False, lease_expires_at=None)
)
_DELETE = delete(sessions).where(sessions.c.id == bindparam("session_id"))
_NEEDS = (
    select(
        sessions.c.workspace_id, sessions.c.id, sessions.c.generation, sessions.c.lease_expires_at
    )
    .where(
        sessions.c.needs_brain,
        or_(
            and_(
                sessions.c.lease_expires_at.is_(None), sessions.c.updated_at <= bindparam("before")
            ),
            sessions.c.lease_expires_at <= bindparam("before"),
        ),
    )
    .order_by(sessions.c.updated_at)
    .limit(bindparam("most", type_=Integer))
)
_PEEK = PreparedAmong(
    lambda ids: select(
        sessions.c.id,
        sessions.c.workspace_id,
        sessions.c.head_seq,
        sessions.c.inbox_tail,
        sessions.c.waiting_interrupts,
        sessions.c.waiting_confirmations,
        sessions.c.waiting_messages,
        sessions.c.generation,
        sessions.c.lease_expires_at,
        sessions.c.archived_at,
        sessions.c.status,
    ).where(sessions.c.id.in_(ids), sessions.c.workspace_id != literal_column(f"'{NOBODYS}'"))
)
# `SessionState.status`, as an expression.
_SHOWN = case(
    (and_(sessions.c.needs_brain, sessions.c.status == int(Status.IDLE)), int(Status.RUNNING)),
    else_=sessions.c.status,
)

_SELECT_DETAILS = Prepared(select(details).where(details.c.session_id == bindparam("session")))
_INSERT_DETAILS = Prepared(insert(details))
_UPDATE_DETAILS = Prepared(
    update(details)
    .where(details.c.session_id == bindparam("session"))
    .values({column: bindparam(column.name) for column in list(details.c)[1:]})
)


def get(connection: Connection, session_id: str) -> SessionRow | None:
    """A session's state as it is stored."""
    rows = _SELECT.execute(connection, {"session_id": session_id})
    return rows[0] if rows else None


def get_at(connection: Connection, session_id: str) -> tuple[SessionRow | None, int | None]:
    """A session's state as it is stored, and the time. PostgreSQL only."""
    rows = _SELECT_AT.execute(connection, {"session_id": session_id})
    return (rows[0], rows[0][WIDTH]) if rows else (None, None)


def lock(
    connection: Connection, session_ids: Collection[str], *, wait: bool
) -> tuple[dict[str, SessionRow], int | None]:
    """States, locked in the order of their ids, and the time if there are any; PostgreSQL only.

    With `wait` it waits for those that others hold, otherwise it leaves them out.
    """
    statement = _LOCK if wait else _LOCK_FREE
    rows = statement.execute(connection, {"sessions": list(session_ids)})
    # As they are, with the time behind them: to cut it off would cost more than to read the rest.
    return {row[0]: row for row in rows}, rows[-1][WIDTH] if rows else None


def existing(connection: Connection, session_ids: Collection[str]) -> set[str]:
    """Those of the sessions that there are, whoever holds them. PostgreSQL only."""
    return {row[0] for row in _EXISTING.execute(connection, {"sessions": list(session_ids)})}


def time(connection: Connection) -> int:
    """The database's time in microseconds since 1970. PostgreSQL only."""
    now: int = _TIME.execute(connection, {})[0][0]
    return now


def add(connection: Connection, new: Iterable[SessionRow]) -> None:
    """Adds sessions."""
    _INSERT.execute_rows(connection, list(new))


def save(connection: Connection, changed: Iterable[SessionRow]) -> None:
    """Writes what of states changes."""
    _UPDATE.execute_rows(connection, [(*row[_FIXED:], row[0]) for row in changed])


def remove(connection: Connection, session_id: str) -> None:
    """Removes a session; all that belongs to it goes by its foreign key.

    Of one with a long log nobody sees anything any more, and `domain.copies` removes the rest.
    """
    if not connection.execute(_HIDE, {"session_id": session_id}).rowcount:
        connection.execute(_DELETE, {"session_id": session_id})


def needs(connection: Connection, before: int, limit: int) -> list[Need]:
    """Sessions that have needed a brain since `before` and have no live lease."""
    rows = connection.execute(_NEEDS, {"before": before, "most": limit})
    return [
        Need(SessionRef(workspace, session_id), generation, expires_at is not None)
        for workspace, session_id, generation, expires_at in rows
    ]


def peek(connection: Connection, session_ids: Collection[str]) -> dict[str, Peek]:
    """How far sessions are."""
    if not session_ids:
        return {}
    return {
        row[0]: Peek(
            SessionRef(row[1], row[0]),
            head_seq=row[2],
            inbox_tail=row[3],
            waiting=Waiting(row[4], row[5], row[6]),
            generation=row[7],
            held=row[8] is not None,
            ended=row[9] is not None or row[10] == int(Status.TERMINATED),
        )
        for row in _PEEK.execute(connection, {}, list(session_ids))
    }


def get_details(connection: Connection, session_id: str) -> SessionRow:
    """The large part of a session as it is stored."""
    return _SELECT_DETAILS.execute(connection, {"session": session_id})[0]


def add_details(connection: Connection, new: Iterable[SessionRow]) -> None:
    """Adds the large part of sessions."""
    _INSERT_DETAILS.execute_rows(connection, list(new))


def save_details(connection: Connection, changed: Iterable[SessionRow]) -> None:
    """Writes the large part of sessions."""
    _UPDATE_DETAILS.execute_rows(connection, [(*row[1:], row[0]) for row in changed])


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
    if query.memory_store_id is not None:
        given = select(memory_stores.c.session_id).where(
            memory_stores.c.memory_store_id == query.memory_store_id
        )
        statement = statement.where(column.id.in_(given))
    if not query.include_archived:
        statement = statement.where(column.archived_at.is_(None))
    if query.statuses:
        statement = statement.where(_SHOWN.in_([int(one) for one in query.statuses]))
    return [
        (restored(row[:WIDTH]), restored_details(row[WIDTH:]))
        for row in connection.execute(statement)
    ]


def restored(row: SessionRow) -> SessionState:
    """A state as the domain knows it."""
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
        self_hosted=bool(row[25]),
    )


def is_waited_for(row: SessionRow) -> bool:
    """Whether anything waits in the inbox of a session that is stored like this."""
    return bool(row[16] or row[17] or row[18])


def stored(state: SessionState) -> SessionRow:
    """A state as it is stored."""
    activity, waiting = state.activity, state.waiting
    return (
        state.id,
        state.workspace_id,
        state.agent_id,
        state.agent_version,
        state.primary_thread_id,
        state.created_at,
        state.updated_at,
        state.archived_at,
        int(activity.status),
        activity.running_since,
        activity.active_micros,
        activity.ended_at,
        int(state.stop),
        state.head_seq,
        state.head_at,
        state.inbox_tail,
        waiting.interrupts,
        waiting.confirmations,
        waiting.messages,
        state.unanswered,
        state.needs_brain,
        state.generation,
        state.holder,
        state.lease_expires_at,
        state.usage,
        state.self_hosted,
    )


def restored_details(row: SessionRow) -> SessionDetails:
    """The large part of a session as the domain knows it."""
    _, environment_id, title, metadata, agent, environment, *rest = row
    forked_from, forked_seq, budget, resources, vault_ids = rest
    return SessionDetails(
        environment_id=environment_id,
        agent=agent_pb2.SessionAgent.FromString(agent),
        environment=environment_pb2.EnvironmentConfig.FromString(environment),
        title=title,
        metadata=json.loads(metadata),
        origin=None if forked_from is None else Origin(forked_from, forked_seq),
        budget=budget,
        resources=tuple(session_pb2.Session.FromString(resources).resources) if resources else (),
        vault_ids=tuple(json.loads(vault_ids)) if vault_ids else (),
    )


def stored_details(session_id: str, large: SessionDetails) -> SessionRow:
    """The large part of a session as it is stored."""
    return (
        session_id,
        large.environment_id,
        large.title,
        json.dumps(large.metadata),
        large.agent.SerializeToString(),
        large.environment.SerializeToString(),
        large.origin and large.origin.session_id,
        large.origin and large.origin.seq,
        large.budget,
        session_pb2.Session(resources=large.resources).SerializeToString() or None,
        json.dumps(large.vault_ids) if large.vault_ids else None,
    )
