"""Copying a stretch of one log into another, most of it without its leaving the database."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Integer,
    LargeBinary,
    String,
    bindparam,
    case,
    func,
    insert,
    literal_column,
    not_,
    or_,
    select,
)

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2
from services.session.domain.copies import STEP_BYTES, STEP_EVENTS
from services.session.domain.ports import CallState
from services.session.domain.renaming import rename_threads
from services.session.store import events as log
from services.session.store.slices import fitting
from services.session.store.tables import calls, events
from storage.prepared import Prepared

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement, Connection, ScalarSelect

    from services.session.domain.copies import Stretch

_OPEN, _CLOSED = str(int(CallState.OPEN)), str(int(CallState.CLOSED))
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


def _of_call(column: Column[Any]) -> ScalarSelect[Any]:
    """A column of the call that an event of the source has opened.

    Looked up for one event after the other: a join would sooner or later read every call there is.
    """
    its_own = calls.c.session_id == bindparam("source"), calls.c.call_id == _of.event_id
    return select(column).where(*its_own).correlate(events).scalar_subquery()


_result = events.alias("result")
_result_seq = select(_result.c.seq).where(
    _result.c.session_id == bindparam("source"), _result.c.event_id == _of_call(calls.c.result_id)
)
_closed = _result_seq.correlate(events).scalar_subquery() <= bindparam("end", type_=BigInteger)
_CALLS = Prepared(
    insert(calls).from_select(
        list(calls.c),
        select(
            bindparam("target", type_=String),
            _of.event_id,
            _of_call(calls.c.kind),
            case((_closed, literal_column(_CLOSED)), else_=literal_column(_OPEN)),
            case((_closed, _of_call(calls.c.result_id)), else_=literal_column("''")),
        ).where(*_WITHIN, _of.type.in_([bindparam(f"type_{n}") for n in range(len(_CALL_TYPES))])),
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
    parameters = within | types | {"target": stretch.target_id, "end": stretch.upto}
    _CALLS.execute(connection, parameters)


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
