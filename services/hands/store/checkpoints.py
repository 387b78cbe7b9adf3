"""Checkpoints over SQL. Each method is one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, insert, select, update

from services.hands.domain.address import split
from services.hands.domain.checkpoint import Checkpoint, Dropped, Origin, is_behind
from services.hands.store import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from chassis.clock import Clock
    from storage import Database

_UPLOADING, _COUNTS, _DROPPED = 0, 1, 2

_rows = tables.checkpoints
_this = _rows.c.checkpoint_id == bindparam("id")
_here = (_rows.c.session_id == bindparam("session")) & (_rows.c.hand == bindparam("named"))
_alive = _rows.c.state != _DROPPED

_READ: Final = select(_rows).where(_here & (_rows.c.state == _COUNTS))
_READ_LOCKED: Final = select(_rows).where(_here & (_rows.c.state == _COUNTS)).with_for_update()
_READ_ONE: Final = select(_rows).where(_this & (_rows.c.state == _UPLOADING)).with_for_update()
_ANY: Final = select(_rows.c.checkpoint_id).where(_rows.c.state == _COUNTS).limit(1)
_ADD: Final = insert(_rows)
_COUNT: Final = (
    update(_rows)
    .where(_this)
    .values(state=_COUNTS, size=bindparam("bytes"), digest=bindparam("sha256"))
)
_DROP: Final = update(_rows).where(_this).values(state=_DROPPED)
# Not one that counts: whether a commit that was cut off came about, only the row says.
_GIVE_UP: Final = update(_rows).where(_this & (_rows.c.state == _UPLOADING)).values(state=_DROPPED)
_DROP_UNFINISHED: Final = update(_rows).where(_rows.c.state == _UPLOADING).values(state=_DROPPED)
_DROP_HERE: Final = update(_rows).where(_here & _alive).values(state=_DROPPED)
_DROP_ALL: Final = (
    update(_rows)
    .where((_rows.c.session_id == bindparam("session")) & _alive)
    .values(state=_DROPPED)
)
_FIND: Final = select(_rows.c.checkpoint_id).where(_here & _alive).limit(1)
_MOVE: Final = (
    update(_rows)
    .where(_here & _alive)
    .values(session_id=bindparam("to_session"), hand=bindparam("to_hand"))
)
_DROPPED_ONES: Final = (
    select(_rows.c.checkpoint_id, _rows.c.name, _rows.c.size)
    .where(_rows.c.state == _DROPPED)
    .order_by(_rows.c.created_at)
    .limit(bindparam("most"))
)
_FORGET: Final = delete(_rows).where(_this & (_rows.c.state == _DROPPED))


class SqlCheckpoints:
    """The `Checkpoints` port over a database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def newest(self, where: str) -> Checkpoint | None:
        """The checkpoint that counts."""
        row = await self._database.read(
            lambda connection: connection.execute(_READ, _place(where)).one_or_none()
        )
        return None if row is None else _checkpoint(row)

    async def any(self) -> bool:
        """Whether there is a checkpoint of any workspace."""
        return await self._database.read(
            lambda connection: connection.execute(_ANY).first() is not None
        )

    async def begin(self, where: str, checkpoint_id: str, name: str, origin: Origin) -> str | None:
        """Notes that `name` is about to be uploaded; answers the checkpoint that counts, or ""."""
        place = _place(where)
        row = {
            "checkpoint_id": checkpoint_id,
            "session_id": place["session"],
            "hand": place["named"],
            "state": _UPLOADING,
            "name": name,
            "volume": origin.volume,
            "size": 0,
            "digest": b"",
            "created_at": int(self._clock.now().timestamp() * 1_000_000),
        }

        def write(connection: Connection) -> str | None:
            found = connection.execute(_READ_LOCKED, place).one_or_none()
            if found is not None and is_behind(origin, _checkpoint(found)):
                return None
            connection.execute(_ADD, row)
            return "" if found is None else str(found.checkpoint_id)

        return await self._database.write(write)

    async def commit(self, checkpoint: Checkpoint, before: str) -> bool:
        """Has an uploaded one count, and the one before it deleted, all at once."""
        this = {"id": checkpoint.id}

        def write(connection: Connection) -> bool:
            own = connection.execute(_READ_ONE, this).one_or_none()
            if own is None:
                return False
            place = {"session": own.session_id, "named": own.hand}
            found = connection.execute(_READ_LOCKED, place).one_or_none()
            if ("" if found is None else found.checkpoint_id) != before:
                connection.execute(_DROP, this)
                return False
            if before:
                connection.execute(_DROP, {"id": before})
            values = {"bytes": checkpoint.size, "sha256": checkpoint.digest}
            connection.execute(_COUNT, this | values)
            return True

        return await self._database.write(write)

    async def drop(self, checkpoint_id: str) -> None:
        """Notes that one is to be deleted, whose upload failed, unless it counts all the same."""
        await self._database.write(
            lambda connection: _run(connection, _GIVE_UP, {"id": checkpoint_id})
        )

    async def drop_unfinished(self) -> None:
        """Notes that what dead processes were uploading is to be deleted."""
        await self._database.write(lambda connection: _run(connection, _DROP_UNFINISHED, {}))

    async def move(self, where: str, to: str) -> None:
        """Has the checkpoints of one workspace be another's, if there are any."""
        place, target = _place(where), _place(to)

        def write(connection: Connection) -> None:
            if connection.execute(_FIND, place).first() is None:
                return  # told twice: the other has them already
            connection.execute(_DROP_HERE, target)
            values = {"to_session": target["session"], "to_hand": target["named"]}
            connection.execute(_MOVE, place | values)

        await self._database.write(write)

    async def purge(self, session_id: str, hand: str | None) -> None:
        """Notes that all of a session's workspace are to be deleted, or of all that it has."""
        place = {"session": session_id}
        statement = _DROP_ALL if hand is None else _DROP_HERE
        if hand is not None:
            place["named"] = hand
        await self._database.write(lambda connection: _run(connection, statement, place))

    async def to_delete(self, limit: int) -> Sequence[Dropped]:
        """Those that are to be deleted, the oldest first; of those that never counted nothing but
        their beginning is known.
        """
        rows = await self._database.read(
            lambda connection: connection.execute(_DROPPED_ONES, {"most": limit}).all()
        )
        return [Dropped(row.checkpoint_id, row.name, row.size > 0) for row in rows]

    async def forget(self, checkpoint_id: str) -> None:
        """Notes that one is deleted."""
        await self._database.write(
            lambda connection: _run(connection, _FORGET, {"id": checkpoint_id})
        )


def _place(where: str) -> dict[str, str]:
    session_id, hand = split(where)
    return {"session": session_id, "named": hand}


def _checkpoint(row: Row[tuple[object, ...]]) -> Checkpoint:
    return Checkpoint(row.checkpoint_id, row.name, row.volume, row.size, row.digest)


def _run(connection: Connection, statement: object, values: dict[str, str]) -> None:
    connection.execute(statement, values)  # type: ignore[call-overload]
