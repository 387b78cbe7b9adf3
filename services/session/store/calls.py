"""Statements on tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, insert, select, update

from services.session.domain.event import CallKind
from services.session.domain.ports import Call, CallState
from services.session.store.pairs import Pair, lookup, parameters
from services.session.store.tables import calls
from storage.prepared import Prepared, PreparedAmong

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Connection

_INSERT = Prepared(insert(calls))
_COLUMNS = calls.c.call_id, calls.c.kind, calls.c.state, calls.c.result_id
_SELECT = PreparedAmong(
    lambda ids: select(*_COLUMNS).where(
        calls.c.session_id == bindparam("session"), calls.c.call_id.in_(ids)
    )
)
_SELECT_PAIRS = Prepared(lookup(calls.c.session_id, calls.c.call_id, *_COLUMNS[1:]))
_UPDATE = Prepared(
    update(calls)
    .where(calls.c.session_id == bindparam("session"), calls.c.call_id == bindparam("call"))
    .values(state=bindparam("to_state"), result_id=bindparam("result"))
)


def get(connection: Connection, session_id: str, call_ids: Collection[str]) -> dict[str, Call]:
    """Calls by id."""
    rows = _SELECT.execute(connection, {"session": session_id}, list(call_ids))
    return {row[0]: _call(*row) for row in rows}


def get_pairs(connection: Connection, pairs: Collection[Pair]) -> dict[Pair, Call]:
    """Calls of several sessions. PostgreSQL only."""
    rows = _SELECT_PAIRS.execute(connection, parameters(pairs))
    return {(row[0], row[1]): _call(*row[1:]) for row in rows}


def add(connection: Connection, new: Iterable[tuple[Pair, Call]]) -> None:
    """Adds calls."""
    _INSERT.execute_each(
        connection,
        [
            {
                "session_id": session_id,
                "call_id": call.id,
                "kind": int(call.kind),
                "state": int(call.state),
                "result_id": call.result_id,
            }
            for (session_id, _), call in new
        ],
    )


def save(connection: Connection, changed: Iterable[tuple[Pair, Call]]) -> None:
    """Writes how far calls are."""
    _UPDATE.execute_each(
        connection,
        [
            {
                "session": session_id,
                "call": call.id,
                "to_state": int(call.state),
                "result": call.result_id,
            }
            for (session_id, _), call in changed
        ],
    )


def _call(call_id: str, kind: int, state: int, result_id: str) -> Call:
    return Call(call_id, CallKind(kind), CallState(state), result_id)
