"""The journal over SQL. Each method is one transaction, so one durable commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, insert, literal, select, update

from chassis.context import current_call
from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.domain.execution import Begun, Record, Step, begin, cancelled
from services.hands.store import fences, tables
from services.hands.store.owners import SqlOwners
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from chassis.clock import Clock
    from storage import Database

_calls, _ended = tables.executions, tables.ended
_this_session = _calls.c.session_id == bindparam("session")
_this_call = _this_session & (_calls.c.call_id == bindparam("call"))

# Locked: a result that is on its way must not come between what is read and what is made of it.
_READ: Final = Prepared(
    select(_calls.c.tool, _calls.c.generation, _calls.c.starts, _calls.c.result)
    .where(_this_call)
    .with_for_update()
)
_ADD: Final = Prepared(insert(_calls))
_RESTART: Final = Prepared(
    update(_calls)
    .where(_this_call)
    .values(starts=bindparam("count"), generation=bindparam("by"), started_at=bindparam("now"))
)
_END: Final = Prepared(
    update(_calls)
    .where(_this_call & _calls.c.result.is_(None))
    .values(result=bindparam("answer"), ended_at=bindparam("now"))
)
_FORGET: Final = Prepared(delete(_calls).where(_this_call & _calls.c.result.is_(None)))
_RAN: Final = (
    select(literal(1))
    .where(_this_session & (_calls.c.tool == bindparam("name")))
    .where((_calls.c.starts > 0) & (_calls.c.call_id != bindparam("besides")))
    .limit(1)
)
_PURGE: Final = delete(_calls).where(_this_session)
_ADD_ENDED: Final = insert(_ended)
_FORGET_ENDED: Final = delete(_ended).where(
    (_ended.c.session_hash == bindparam("hash")) | (_ended.c.ended_at < bindparam("before"))
)

_REMEMBERED: Final = 30 * 24 * 3600 * 1_000_000
"""Microseconds for which calls of a session that is gone are refused."""


class SqlJournal:
    """The `Journal` port over a database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._owners = SqlOwners(database)
        self._clock = clock

    async def begin(self, session_id: str, call_id: str, generation: int, tool: str) -> Begun:
        """Records that a call starts, unless it has a result or must not run again."""
        key = {"session": session_id, "call": call_id}
        now = self._now()
        workspace = current_call().workspace_id

        def write(connection: Connection) -> Begun:
            fences.advance(connection, session_id, generation, workspace)
            found = _found(connection, key)
            begun = begin(found, tool, generation)
            record = begun.record
            if found is None:
                row = _row(session_id, call_id, record, now)
                _ADD.execute(connection, row)
            elif begun.step is Step.RUN:
                values = {"count": record.starts, "by": record.generation, "now": now}
                _RESTART.execute(connection, key | values)
            elif found.result is None and record.result is not None:
                end = {"answer": record.result.SerializeToString(), "now": now}
                _END.execute(connection, key | end)
            return begun

        return await self._database.write(write)

    async def finish(self, session_id: str, call_id: str, result: ExecuteResponse) -> None:
        """Records a call's result. The first one stays."""
        values = {
            "session": session_id,
            "call": call_id,
            "answer": result.SerializeToString(),
            "now": self._now(),
        }
        await self._database.write(lambda connection: _run(connection, _END, values))

    async def forget(self, session_id: str, call_id: str) -> None:
        """Takes back the start of a call of which nothing ran, so that it may be asked again."""
        key = {"session": session_id, "call": call_id}
        await self._database.write(lambda connection: _run(connection, _FORGET, key))

    async def ran(self, session_id: str, tool: str, *, besides: str) -> bool:
        """Whether a call of `tool` was ever started in this session, `besides` one call."""
        values = {"session": session_id, "name": tool, "besides": besides}
        return await self._database.read(
            lambda connection: connection.execute(_RAN, values).first() is not None
        )

    async def cancel(self, session_id: str, generation: int, call_ids: Sequence[str]) -> None:
        """Records CANCELLED as the result of those calls that have no record at all."""
        now, workspace = self._now(), current_call().workspace_id
        tombstone = Record(tool="", generation=generation, starts=0, result=cancelled())

        def write(connection: Connection) -> None:
            fences.advance(connection, session_id, generation, workspace)
            for call_id in dict.fromkeys(call_ids):
                if _found(connection, {"session": session_id, "call": call_id}) is None:
                    row = _row(session_id, call_id, tombstone, now)
                    _ADD.execute(connection, row)

        await self._database.write(write)

    async def fence(
        self, session_id: str, generation: int, taken: Callable[[], None] | None = None
    ) -> None:
        """Only checks and advances the fence. `taken`: it will be, if the commit succeeds."""
        workspace = current_call().workspace_id

        def write(connection: Connection) -> None:
            fences.advance(connection, session_id, generation, workspace)
            if taken is not None:
                taken()

        await self._database.write(write)

    async def end(self, session_id: str, generation: int) -> None:
        """Takes nothing of `generation`, or of an older one, any more."""
        workspace = current_call().workspace_id
        await self._database.write(
            lambda connection: fences.end(connection, session_id, generation, workspace)
        )

    async def purge(self, session_id: str, generation: int) -> None:
        """Forgets the session, its fence included, but for what the fence refused."""
        now, name = self._now(), fences.hashed(session_id)

        def write(connection: Connection) -> None:
            fences.find(connection, session_id)
            connection.execute(_PURGE, {"session": session_id})
            fences.purge(connection, session_id)
            connection.execute(_FORGET_ENDED, {"hash": name, "before": now - _REMEMBERED})
            if generation:
                row = {"session_hash": name, "generation": generation + 1, "ended_at": now}
                connection.execute(_ADD_ENDED, row)

        await self._database.write(write)

    async def owner(self, session_id: str) -> str:
        """The session's workspace; empty where it is not known."""
        return await self._owners.workspace_of(session_id)

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000)


def _found(connection: Connection, key: dict[str, str]) -> Record | None:
    rows = _READ.execute(connection, key)
    if not rows:
        return None
    tool, generation, starts, answer = rows[0]
    result = None if answer is None else ExecuteResponse.FromString(answer)
    return Record(tool, generation, starts, result)


def _row(session_id: str, call_id: str, record: Record, now: int) -> dict[str, object]:
    result = record.result
    return {
        "session_id": session_id,
        "call_id": call_id,
        "generation": record.generation,
        "tool": record.tool,
        "starts": record.starts,
        "started_at": now,
        "ended_at": None if result is None else now,
        "result": None if result is None else result.SerializeToString(),
    }


def _run(connection: Connection, statement: Prepared, values: Mapping[str, object]) -> None:
    statement.execute(connection, values)
