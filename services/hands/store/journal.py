"""The journal over SQL. Each method is one transaction, so one durable commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, insert, select, update

from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.domain import fence
from services.hands.domain.execution import Begun, Record, Step, begin, cancelled
from services.hands.store import tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from chassis.clock import Clock
    from storage import Database

_calls, _fences = tables.executions, tables.fences
_this_session = _calls.c.session_id == bindparam("session")
_this_call = _this_session & (_calls.c.call_id == bindparam("call"))
_this_fence = _fences.c.session_id == bindparam("session")

_READ_FENCE: Final = select(_fences.c.generation).where(_this_fence)
_RAISE_FENCE: Final = update(_fences).where(_this_fence).values(generation=bindparam("highest"))
_ADD_FENCE: Final = insert(_fences)
_READ: Final = select(_calls.c.tool, _calls.c.generation, _calls.c.starts, _calls.c.result).where(
    _this_call
)
_ADD: Final = insert(_calls)
_RESTART: Final = (
    update(_calls)
    .where(_this_call)
    .values(starts=bindparam("count"), generation=bindparam("by"), started_at=bindparam("now"))
)
_END: Final = (
    update(_calls)
    .where(_this_call & _calls.c.result.is_(None))
    .values(result=bindparam("answer"), ended_at=bindparam("now"))
)
_FORGET: Final = delete(_calls).where(_this_call & _calls.c.result.is_(None))
_PURGE: Final = delete(_calls).where(_this_session)
_PURGE_FENCE: Final = delete(_fences).where(_this_fence)


class SqlJournal:
    """The `Journal` port over a database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, session_id: str, call_id: str, generation: int, tool: str) -> Begun:
        """Records that a call starts, unless it has a result or must not run again."""
        key = {"session": session_id, "call": call_id}
        now = self._now()

        def write(connection: Connection) -> Begun:
            _advance(connection, session_id, generation)
            found = _found(connection, key)
            begun = begin(found, tool, generation)
            record = begun.record
            if found is None:
                row = _row(session_id, call_id, record, now)
                connection.execute(_ADD, row)
            elif begun.step is Step.RUN:
                values = {"count": record.starts, "by": record.generation, "now": now}
                connection.execute(_RESTART, key | values)
            elif found.result is None and record.result is not None:
                end = {"answer": record.result.SerializeToString(), "now": now}
                connection.execute(_END, key | end)
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

    async def cancel(self, session_id: str, generation: int, call_ids: Sequence[str]) -> None:
        """Records CANCELLED as the result of those calls that have no record at all."""
        now = self._now()
        tombstone = Record(tool="", generation=generation, starts=0, result=cancelled())

        def write(connection: Connection) -> None:
            _advance(connection, session_id, generation)
            for call_id in dict.fromkeys(call_ids):
                if _found(connection, {"session": session_id, "call": call_id}) is None:
                    row = _row(session_id, call_id, tombstone, now)
                    connection.execute(_ADD, row)

        await self._database.write(write)

    async def fence(self, session_id: str, generation: int) -> None:
        """Only checks and advances the fence."""
        await self._database.write(lambda connection: _advance(connection, session_id, generation))

    async def purge(self, session_id: str) -> None:
        """Forgets the session, its fence included."""

        def write(connection: Connection) -> None:
            connection.execute(_PURGE, {"session": session_id})
            connection.execute(_PURGE_FENCE, {"session": session_id})

        await self._database.write(write)

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000)


def _advance(connection: Connection, session_id: str, generation: int) -> None:
    highest = connection.execute(_READ_FENCE, {"session": session_id}).scalar()
    advanced = fence.advance(highest or 0, generation)
    if highest is None:
        if advanced:
            connection.execute(_ADD_FENCE, {"session_id": session_id, "generation": advanced})
    elif advanced > highest:
        connection.execute(_RAISE_FENCE, {"session": session_id, "highest": advanced})


def _found(connection: Connection, key: dict[str, str]) -> Record | None:
    row = connection.execute(_READ, key).one_or_none()
    if row is None:
        return None
    result = None if row.result is None else ExecuteResponse.FromString(row.result)
    return Record(row.tool, row.generation, row.starts, result)


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


def _run(connection: Connection, statement: object, values: Mapping[str, object]) -> None:
    connection.execute(statement, values)  # type: ignore[call-overload]
