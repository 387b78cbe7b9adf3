"""The store: the domain's transactions over `storage`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from services.session.domain.ports import UNKNOWN
from services.session.store.group import GroupCommitter
from services.session.store.postgres import PostgresEngine
from services.session.store.sqlite import SqliteEngine
from services.session.store.transaction import SqlTransaction
from storage.sqlite import SqliteDatabase

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sqlalchemy import Connection

    from chassis.clock import Clock
    from services.session.domain.ports import About, Transaction
    from services.session.store.engine import Engine
    from storage import Database

T = TypeVar("T")


class SqlSessionStore:
    """Sessions in a database that this service owns.

    With SQLite `clock` is the database's, since no other process opens the file; PostgreSQL has a
    clock of its own.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._engine: Engine = (
            SqliteEngine(clock) if isinstance(database, SqliteDatabase) else PostgresEngine()
        )
        self._groups = GroupCommitter(database, self._engine)

    async def read(self, fn: Callable[[Transaction], T], /) -> T:
        """Runs `fn` on a snapshot of what is committed. Raises `TypeError` if it writes."""
        return await self._database.read(partial(self._read, fn))

    async def write(self, fn: Callable[[Transaction], T], /, *, about: About = UNKNOWN) -> T:
        """Runs `fn` in a transaction and returns once it is durable."""
        return await self._groups.submit(fn, about)

    def submit(
        self, fn: Callable[[Transaction], T], /, *, about: About = UNKNOWN
    ) -> asyncio.Future[T]:
        """Has `fn` run in a transaction; the future ends once it is durable."""
        return self._groups.submit(fn, about)

    async def close(self) -> None:
        """Finishes the writes that were accepted. The database is its owner's to close."""
        await self._groups.close()

    def _read(self, fn: Callable[[Transaction], T], connection: Connection) -> T:
        tx = SqlTransaction(self._engine.reading(connection))
        result = fn(tx)
        if tx.wrote:
            msg = "a transaction that reads has written"
            raise TypeError(msg)
        return result
