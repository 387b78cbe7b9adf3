"""Connections to PostgreSQL: made when they are needed, over asyncpg."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakSet

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
        self._open: WeakSet[asyncpg.Connection[Any]] = WeakSet()
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
            if not driver.is_closed():
                return connection, driver
            await connection.invalidate()
            await connection.close()

    async def close(self) -> None:
        """Closes all that are open, whether the server answers or not."""
        closing = [driver.close(timeout=_CLOSE_SECONDS) for driver in self._open]
        await asyncio.gather(*closing, return_exceptions=True)
        await self._engine.dispose()

    async def _connect(self) -> asyncpg.Connection[Any]:
        driver = await asyncpg.connect(
            self._address.dsn, timeout=PATIENCE, server_settings=self._settings
        )
        self._open.add(driver)
        return driver
