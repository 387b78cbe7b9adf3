"""Connections to PostgreSQL: made when they are needed, over asyncpg."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import greenlet_spawn

from storage.failures import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from sqlalchemy import Connection

    from storage.address import Address

    T = TypeVar("T")

_CLOSE_SECONDS: Final = 1.0


@dataclass(slots=True, eq=False)
class Pooled:
    """One connection: SQLAlchemy's, and the driver's own beneath it."""

    connection: AsyncConnection
    driver: asyncpg.Connection[Any]
    answered: float
    """When it was last seen to answer, by the loop's clock."""

    async def run(self, fn: Callable[[Connection], T]) -> T:
        """Runs a synchronous function, which gives way at every statement."""
        return await greenlet_spawn(fn, self.connection.sync_connection)

    async def end(self) -> None:
        """Ends it, and with it what it was doing, without a word to the server."""
        self.driver.terminate()
        await self.connection.invalidate()
        await self.connection.close()


class Connections:
    """At most `size` connections to one schema, kept open from one use to the next.

    `settings` are the server's for each of them (PostgreSQL manual, chapter 20). They commit every
    statement unless they are told BEGIN. SQLAlchemy's own pool would take longer over a connection
    than the server over a short transaction.
    """

    def __init__(
        self, address: Address, schema: str, settings: Mapping[str, str], size: int
    ) -> None:
        self._address = address
        self._settings = {**settings, "search_path": schema, "application_name": schema}
        self._free = asyncio.Semaphore(size)
        self._idle: list[Pooled] = []
        self._doubted = 0.0
        # The driver reads the URL itself, as libpq does: sockets, TLS, several hosts, .pgpass.
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            isolation_level="AUTOCOMMIT",  # we say BEGIN ourselves
            poolclass=NullPool,
        )

    async def take(self) -> Pooled:
        """A connection that is open as far as is known here. Waits while all are taken."""
        await self._free.acquire()
        try:
            while self._idle:
                pooled = self._idle.pop()  # the one that has just been used
                if not pooled.driver.is_closed() and pooled.answered >= self._doubted:
                    return pooled
                await pooled.end()
            connection = await self._engine.connect()
            raw = await connection.get_raw_connection()
            driver = cast("asyncpg.Connection[Any]", raw.driver_connection)
            return Pooled(connection, driver, asyncio.get_running_loop().time())
        except BaseException:
            self._free.release()
            raise

    def give_back(self, pooled: Pooled) -> None:
        """Returns a connection that has just answered and is in no transaction."""
        pooled.answered = asyncio.get_running_loop().time()
        self._idle.append(pooled)
        self._free.release()

    async def give_up(self, pooled: Pooled) -> None:
        """Returns a connection of which it is not known what it is doing: it is ended."""
        try:
            await pooled.end()
        finally:
            self._free.release()

    def doubt(self) -> None:
        """Takes no connection again that has not answered since: one was found to lead nowhere."""
        self._doubted = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Closes those that are not taken, whether the server answers or not."""
        idle, self._idle = self._idle, []
        closing = [pooled.driver.close(timeout=_CLOSE_SECONDS) for pooled in idle]
        await asyncio.gather(*closing, return_exceptions=True)
        for pooled in idle:
            await pooled.end()
        await self._engine.dispose()

    async def _connect(self) -> asyncpg.Connection[Any]:
        return await asyncpg.connect(
            self._address.dsn, timeout=PATIENCE, server_settings=self._settings
        )
