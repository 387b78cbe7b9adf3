"""The store: the domain's transactions over `storage`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from services.session.domain.ports import UNKNOWN
from services.session.store import sessions
from services.session.store.group import GroupCommitter
from services.session.store.transaction import SqlTransaction
from services.session.store.unit import Unit
from storage.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from chassis.clock import Clock
    from services.session.domain.ports import About, Transaction
    from services.session.store.sessions import SessionRow
    from storage import Database

T = TypeVar("T")


class SqlSessionStore:
    """Sessions in a database that this service owns.

    With SQLite, whose writer thread has writes share a commit, `clock` is the database's, since no
    other process opens the file. PostgreSQL has a clock of its own, and `GroupCommitter` before it.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._groups = None if isinstance(database, SqliteDatabase) else GroupCommitter(database)

    async def read(self, fn: Callable[[Transaction], T], /) -> T:
        """Runs `fn` on a snapshot of what is committed. Raises `TypeError` if it writes."""
        return await self._database.read(partial(self._read, fn))

    async def write(self, fn: Callable[[Transaction], T], /, *, about: About = UNKNOWN) -> T:
        """Runs `fn` in a transaction and returns once it is durable."""
        if self._groups is not None:
            return await self._groups.write(fn, about)
        return await self._database.write(partial(self._write, fn))

    async def close(self) -> None:
        """Finishes the writes that were accepted. The database is its owner's to close."""
        if self._groups is not None:
            await self._groups.close()

    def _read(self, fn: Callable[[Transaction], T], connection: Connection) -> T:
        unit = self._own(connection) if self._groups is None else _dated(connection)
        tx = SqlTransaction(unit)
        result = fn(tx)
        if tx.wrote:
            msg = "a transaction that reads has written"
            raise TypeError(msg)
        return result

    def _write(self, fn: Callable[[Transaction], T], connection: Connection) -> T:
        unit = self._own(connection)
        tx = SqlTransaction(unit)
        result = fn(tx)
        tx.keep()
        unit.flush()
        return result

    def _own(self, connection: Connection) -> Unit:
        return Unit(connection, _plain, self._time)

    def _time(self, _connection: Connection) -> int:
        return int(self._clock.now().timestamp() * 1_000_000)


def _dated(connection: Connection) -> Unit:
    return Unit(connection, _at, sessions.time)


def _plain(unit: Unit, session_id: str) -> SessionRow | None:
    return sessions.get(unit.connection, session_id)


def _at(unit: Unit, session_id: str) -> SessionRow | None:
    """A session's row, and the time with it."""
    row, time = sessions.get_at(unit.connection, session_id)
    unit.time = unit.time or time
    return row
