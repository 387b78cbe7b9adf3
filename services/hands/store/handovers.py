"""What was handed on, over SQL. Each method is one transaction, so one durable commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, insert, select, update

from services.hands.domain.handover import HandOver, not_seen, refused
from services.hands.store import fences, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from chassis.clock import Clock
    from services.hands.domain.handover import Generations
    from storage import Database

_given = tables.handovers
_this = (_given.c.session_id == bindparam("session")) & (_given.c.hand == bindparam("name"))

_FIND: Final = select(_given).where(_this)
_ADD: Final = insert(_given)
_FORGET: Final = delete(_given).where(_this)
_SETTLE: Final = update(_given).where(_this).values(settled=True)
_UNSETTLED: Final = select(_given).where(_given.c.settled.is_(False)).order_by(_given.c.begun_at)
_GIVERS: Final = select(_given.c.session_id).distinct()
_FORGET_ALL: Final = delete(_given).where(_given.c.session_id == bindparam("session"))


class SqlHandOvers:
    """The `HandOvers` port over a database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, handover: HandOver, generations: Generations, workspace_id: str) -> None:
        """Records that the receiver has the hand; what it once gave away at that address is its."""
        now = int(self._clock.now().timestamp() * 1_000_000)

        def write(connection: Connection) -> None:
            _heed(connection, handover, generations, workspace_id)
            found = _find(connection, handover.session_id, handover.hand)
            if found is not None and found != handover:
                raise refused(found)
            # Not when it is repeated: the receiver may have handed it on since.
            if found is None:
                back = {"session": handover.to_session_id, "name": handover.to_hand}
                connection.execute(_FORGET, back)
                row = {
                    "session_id": handover.session_id,
                    "hand": handover.hand,
                    "to_session_id": handover.to_session_id,
                    "to_hand": handover.to_hand,
                    "settled": False,
                    "begun_at": now,
                }
                connection.execute(_ADD, row)

        await self._database.write(write)

    async def settle(self, handover: HandOver) -> None:
        """Records that the files are where they belong."""
        key = {"session": handover.session_id, "name": handover.hand}
        await self._database.write(lambda connection: _run(connection, _SETTLE, key))

    async def unsettled(self) -> Sequence[HandOver]:
        """What was begun and is not settled, in the order in which it was begun."""
        rows = await self._database.read(lambda connection: connection.execute(_UNSETTLED).all())
        return [_handover(row) for row in rows]

    async def find(self, session_id: str, hand: str) -> HandOver | None:
        """Whom a hand was given to, if it was given away."""
        return await self._database.read(lambda connection: _find(connection, session_id, hand))

    async def givers(self) -> set[str]:
        """The sessions that gave something away."""
        rows = await self._database.read(lambda connection: connection.execute(_GIVERS).all())
        return {row.session_id for row in rows}

    async def forget(self, session_id: str) -> None:
        """Forgets what a session gave away."""
        key = {"session": session_id}
        await self._database.write(lambda connection: _run(connection, _FORGET_ALL, key))


def _heed(
    connection: Connection, handover: HandOver, generations: Generations, workspace_id: str
) -> None:
    """Takes both sessions' generations, and sees that both are of the workspace."""
    spoken = {handover.to_session_id: generations.receiver}
    spoken[handover.session_id] = generations.giver
    for session_id in sorted(spoken):  # in one order, for each is a lock
        found = fences.find(connection, session_id)
        if found is None or found.workspace_id != workspace_id:
            raise not_seen(session_id)
        # Who gives speaks for itself; the receiver may be at rest, with nobody to speak for it.
        if session_id == handover.session_id or spoken[session_id]:
            fences.advance(connection, session_id, spoken[session_id], workspace_id)


def _find(connection: Connection, session_id: str, hand: str) -> HandOver | None:
    row = connection.execute(_FIND, {"session": session_id, "name": hand}).one_or_none()
    return None if row is None else _handover(row)


def _handover(row: Row[tuple[object, ...]]) -> HandOver:
    return HandOver(row.session_id, row.hand, row.to_session_id, row.to_hand)


def _run(connection: Connection, statement: object, values: dict[str, str]) -> None:
    connection.execute(statement, values)  # type: ignore[call-overload]
