"""Copying a stretch of one log into another, most of it without its leaving the database."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, LargeBinary, String, bindparam, func, insert, not_, or_, select

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2
from services.session.domain.copies import STEP_BYTES, STEP_EVENTS
from services.session.domain.ports import Call, CallState
from services.session.domain.renaming import rename_threads
from services.session.store import calls
from services.session.store import events as log
from services.session.store.slices import fitting
from services.session.store.tables import events
from storage.prepared import Prepared, PreparedAmong

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from services.session.domain.copies import Stretch

_CALL_TYPES: Final = ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")

_of = events.c
_WITHIN = (
    _of.session_id == bindparam("source"),
    _of.seq > bindparam("after"),
    _of.seq <= bindparam("upto"),
)
_SIZES = Prepared(
    select(func.length(_of.body))
    .where(*_WITHIN)
    .order_by(_of.seq)
    .limit(bindparam("most", type_=Integer))
)
_OPENED = Prepared(
    select(_of.event_id).where(*_WITHIN, _of.type.in_([bindparam(f"type_{n}") for n in range(3)]))
)
_PLACES = PreparedAmong(
    lambda ids: select(_of.event_id, _of.seq).where(
        _of.session_id == bindparam("source"), _of.event_id.in_(ids)
    )
)


def copy(connection: Connection, stretch: Stretch) -> int:
    """Copies as much of a stretch as a step may; answers the position that it got to.

    Raises NOT_FOUND when the source is not whole any more: somebody has deleted it.
    """
    upto = _reach(connection, stretch)
    within = {"source": stretch.source_id, "after": stretch.after, "upto": upto}
    copied = _copy_events(connection, stretch, within)
    if copied != upto - stretch.after:
        raise _deleted(stretch)
    _copy_calls(connection, stretch, within)
    return upto


def _deleted(stretch: Stretch) -> DroverError:
    return DroverError(Reason.NOT_FOUND, f"session {stretch.source_id} not found")


def _reach(connection: Connection, stretch: Stretch) -> int:
    upto = min(stretch.upto, stretch.after + STEP_EVENTS)
    parameters = {"source": stretch.source_id, "after": stretch.after, "upto": upto}
    sizes = [row[0] for row in _SIZES.execute(connection, parameters | {"most": STEP_EVENTS})]
    if not sizes:
        raise _deleted(stretch)
    return stretch.after + fitting(sizes, STEP_EVENTS, STEP_BYTES)


def _copy_events(connection: Connection, stretch: Stretch, within: dict[str, Any]) -> int:
    """Copies the events of a piece, those that name a thread by way of this process."""
    dialect, number = connection.dialect.name, len(stretch.threads)
    named = within | {f"thread_{n}": one.encode() for n, one in enumerate(stretch.threads)}
    rows = []
    for row in _naming(dialect, number).execute(connection, named):
        event = event_pb2.Event.FromString(row[6])
        rename_threads(event, stretch.threads)
        place = (stretch.target_id, *row[1:4], event.thread_id, row[5])
        rows.append((*place, event.SerializeToString()))
    others = _others(dialect, number).execute(connection, named | {"target": stretch.target_id})
    if rows:
        log.add(connection, rows)
    return len(rows) + len(others)


def _copy_calls(connection: Connection, stretch: Stretch, within: dict[str, Any]) -> None:
    """Copies the calls that a piece opens: open, unless their results are in the stretch too."""
    types = {f"type_{n}": one for n, one in enumerate(_CALL_TYPES)}
    opened = [row[0] for row in _OPENED.execute(connection, within | types)]
    if not opened:
        return
    known = calls.get(connection, stretch.source_id, opened)
    results = [call.result_id for call in known.values() if call.result_id]
    places: dict[str, int] = {}
    if results:
        found = _PLACES.execute(connection, {"source": stretch.source_id}, results)
        places = {row[0]: row[1] for row in found}
    new = []
    for call in known.values():
        closed = places.get(call.result_id, stretch.upto + 1) <= stretch.upto
        copied = call if closed else Call(call.id, call.kind, CallState.OPEN)
        new.append(((stretch.target_id, call.id), copied))
    calls.add(connection, new)


@cache
def _naming(dialect: str, threads: int) -> Prepared:
    """Events of a piece that may name one of so many threads."""
    return Prepared(select(events).where(*_WITHIN, _names(dialect, threads)))


@cache
def _others(dialect: str, threads: int) -> Prepared:
    """Copies the events of a piece that name no thread."""
    target = bindparam("target", type_=String)
    chosen = select(target, *list(events.c)[1:]).where(*_WITHIN, not_(_names(dialect, threads)))
    return Prepared(insert(events).from_select(list(events.c), chosen).returning(events.c.seq))


def _names(dialect: str, threads: int) -> ColumnElement[bool]:
    """Whether an event is a thread's, or has one of the ids somewhere in its body."""
    find = func.instr if dialect == "sqlite" else func.pg_catalog.position
    ids: list[Any] = [bindparam(f"thread_{n}", type_=LargeBinary) for n in range(threads)]
    return or_(_of.thread_id != "", *(find(_of.body, one) > 0 for one in ids))
