"""Statements on tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, insert, select, update

from services.session.domain.event import CallKind
from services.session.domain.ports import Call, CallState
from services.session.store.tables import calls
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

_INSERT = Prepared(insert(calls))
_SELECT = select(calls.c.call_id, calls.c.kind, calls.c.state, calls.c.result_id).where(
    calls.c.session_id == bindparam("session"),
    calls.c.call_id.in_(bindparam("ids", expanding=True)),
)
_UPDATE = Prepared(
    update(calls)
    .where(calls.c.session_id == bindparam("session"), calls.c.call_id == bindparam("call"))
    .values(state=bindparam("to_state"), result_id=bindparam("result"))
)


def get(connection: Connection, session_id: str, call_ids: Collection[str]) -> dict[str, Call]:
    """Calls by id."""
    rows = connection.execute(_SELECT, {"session": session_id, "ids": list(call_ids)})
    return {
        call_id: Call(call_id, CallKind(kind), CallState(state), result_id)
        for call_id, kind, state, result_id in rows
    }


def add(connection: Connection, session_id: str, new: Sequence[Call]) -> None:
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
            for call in new
        ],
    )


def save(connection: Connection, session_id: str, changed: Sequence[Call]) -> None:
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
            for call in changed
        ],
    )
