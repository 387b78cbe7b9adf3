"""Connections to PostgreSQL: made when they are needed, over asyncpg."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from storage.failures import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.address import Address

_CLOSE_SECONDS: Final = 1.0


class Connections:
    """A pool of at most `size` connections to one schema.

    `settings` are the server's for each of them (PostgreSQL manual, chapter 20). They commit every
    statement unless they are told BEGIN.
    """

    def __init__(
        self, address: Address, schema: str, settings: Mapping[str, str], size: int
    ) -> None:
        self._address = address
        self._settings = {**settings, "search_path": schema, "application_name": schema}
        # When each was last seen to answer, and when one was last found to lead nowhere.
        self._answered: WeakKeyDictionary[asyncpg.Connection[Any], float] = WeakKeyDictionary()
        self._doubted = 0.0
        # The driver reads the URL itself, as libpq does: sockets, TLS, several hosts, .pgpass.
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            isolation_level="AUTOCOMMIT",  # we say BEGIN ourselves
            pool_size=size,
            max_overflow=0,
            pool_timeout=PATIENCE,
        )

    async def take(self) -> tuple[AsyncConnection, asyncpg.Connection[Any]]:
        """A connection that is open as far as is known here, and the driver's own beneath it."""
        while True:
            connection = await self._engine.connect()
            raw = await connection.get_raw_connection()
            driver = cast("asyncpg.Connection[Any]", raw.driver_connection)
            if not driver.is_closed() and self._answered[driver] >= self._doubted:
                return connection, driver
            await self.give_up(connection, driver)

    async def give_back(self, connection: AsyncConnection, driver: asyncpg.Connection[Any]) -> None:
        """Returns a connection that has just answered and is in no transaction."""
        self._answered[driver] = asyncio.get_running_loop().time()
        await connection.close()

    async def give_up(self, connection: AsyncConnection, driver: asyncpg.Connection[Any]) -> None:
        """Ends a connection, and with it what it was doing, without a word to the server."""
        driver.terminate()
        await connection.invalidate()
        await connection.close()

    def doubt(self) -> None:
        """Takes no connection again that has not answered since: one was found to lead nowhere."""
        self._doubted = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Closes all that are open, whether the server answers or not."""
        closing = [driver.close(timeout=_CLOSE_SECONDS) for driver in self._answered]
        await asyncio.gather(*closing, return_exceptions=True)
        await self._engine.dispose()

    async def _connect(self) -> asyncpg.Connection[Any]:
        driver = await asyncpg.connect(
            self._address.dsn, timeout=PATIENCE, server_settings=self._settings
        )
        self._answered[driver] = asyncio.get_running_loop().time()
        return driver
