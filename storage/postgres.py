"""PostgreSQL behind the `Database` port, over asyncpg.

The functions are synchronous and run on the event loop, each in a greenlet that gives way at every
statement. Transactions are driven through the driver's own connection: SQLAlchemy's begin and
commit cost a round trip more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import structlog
from sqlalchemy import URL, Connection, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from chassis.errors import DroverError, Reason
from storage.failures import explain
from storage.migrations import require

if TYPE_CHECKING:
    import asyncpg

    from storage.schema import Schema

T = TypeVar("T")

PATIENCE: Final = 6.0
"""Seconds for which a transaction is tried before its caller is told UNAVAILABLE. Longer than a
restart of the server takes, and well within the deadlines of those who call."""

_CONNECTIONS: Final = 8
_MAX_WAITING: Final = 4096
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

# What the server itself sees to, in milliseconds. A peer that stops in the middle of a transaction
# must not keep its locks, and nobody waits long for a lock.
_SERVER_SETTINGS: Final = {
    "idle_in_transaction_session_timeout": "4000",
    "lock_timeout": "3000",
    "statement_timeout": "30000",
    "synchronous_commit": "on",  # acknowledged is durable, whatever the server's default
    "jit": "off",
}

_log = structlog.get_logger("storage.postgres")


class PostgresDatabase:
    """One schema of a PostgreSQL database. Made by `open`, on the event loop that will use it."""

    def __init__(self, engine: AsyncEngine, schema: str) -> None:
        self._engine = engine
        self._schema = schema
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    @classmethod
    def open(cls, url: str, schema: str, *, connections: int = _CONNECTIONS) -> Self:
        """A database whose connections are made when they are needed. Raises `ValueError`."""
        engine = create_async_engine(
            driver_url(url),
            isolation_level="AUTOCOMMIT",  # we say BEGIN ourselves
            pool_size=connections,
            max_overflow=0,
            pool_timeout=PATIENCE,
            connect_args={
                "timeout": PATIENCE,
                "server_settings": _SERVER_SETTINGS
                | {"search_path": schema, "application_name": schema},
            },
        )
        return cls(engine, schema)

    @classmethod
    async def checked(cls, url: str, schema: Schema) -> Self:
        """A database that has been found to have the tables of `schema`. Raises `SchemaError`."""
        database = cls.open(url, schema.name)
        try:
            await database.read(lambda connection: require(connection, schema))
        except BaseException:
            await database.close()
            raise
        return database

    @property
    def schema(self) -> str:
        """The schema whose tables the functions see."""
        return self._schema

    async def read(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` on a snapshot. Raises what `fn` raises, and UNAVAILABLE."""
        return await self._run(fn, _READ)

    async def write(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` in a transaction. Raises what `fn` raises, UNAVAILABLE, RESOURCE_EXHAUSTED."""
        return await self._run(fn, _WRITE)

    async def close(self) -> None:
        """Waits for the transactions that were begun, then closes every connection."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running)
        await self._engine.dispose()

    async def _run(self, fn: Callable[[Connection], T], begin: str) -> T:
        if self._closed:
            raise DroverError(Reason.UNAVAILABLE, "the database is closed")
        if len(self._running) >= _MAX_WAITING:
            raise DroverError(
                Reason.RESOURCE_EXHAUSTED, "too many transactions wait", retry_after=0.1
            )
        # A task of its own: a caller that is cancelled leaves no transaction half way.
        task = asyncio.create_task(self._persist(fn, begin))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _persist(self, fn: Callable[[Connection], T], begin: str) -> T:
        """Runs a transaction again until it is committed, refused, or out of time."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        pause = _FIRST_PAUSE
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._attempt(fn, begin)
            except DroverError:
                raise
            except Exception as cause:
                failure = explain(cause)
                if failure is None:
                    raise
                late = asyncio.get_running_loop().time() + pause >= deadline
                if late or not failure.again or isinstance(cause, _UnknownOutcomeError):
                    _log.warning("transaction_failed", cause=type(cause).__name__)
                    raise failure.error from cause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _attempt(self, fn: Callable[[Connection], T], begin: str) -> T:
        connection, driver = await self._connect()
        try:
            await driver.execute(begin)
            try:
                result = await connection.run_sync(fn)
            except Exception:
                await driver.execute("ROLLBACK")
                raise
            await _commit(driver)
        except BaseException:
            if driver.is_in_transaction() or driver.is_closed():
                driver.terminate()
                await connection.invalidate()
            raise
        finally:
            await connection.close()
        return result

    async def _connect(self) -> tuple[AsyncConnection, asyncpg.Connection[Any]]:
        """A connection that is open as far as is known here."""
        while True:
            connection = await self._engine.connect()
            driver = await driver_of(connection)
            if not driver.is_closed():
                return connection, driver
            await connection.invalidate()
            await connection.close()


class _UnknownOutcomeError(ConnectionError):
    """The connection went away while a commit was on its way."""


async def _commit(driver: asyncpg.Connection[Any]) -> None:
    try:
        await driver.execute("COMMIT")
    except (Exception, asyncio.CancelledError) as cause:  # cancelled by our own time limit alone
        driver.terminate()
        msg = "the database went away during a commit"
        raise _UnknownOutcomeError(msg) from cause


async def driver_of(connection: AsyncConnection) -> asyncpg.Connection[Any]:
    """The driver's connection behind SQLAlchemy's."""
    raw = await connection.get_raw_connection()
    return cast("asyncpg.Connection[Any]", raw.driver_connection)


def driver_url(url: str) -> URL:
    """The URL of a database with the driver that Drover uses. Raises `ValueError`."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql" or not parsed.database:
        msg = "a PostgreSQL URL reads postgresql://user:password@host:port/database"
        raise ValueError(msg)
    return parsed.set(drivername="postgresql+asyncpg")
