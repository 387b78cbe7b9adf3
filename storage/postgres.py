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

from chassis.errors import DroverError, Reason
from storage.address import Address
from storage.connections import Connections
from storage.failures import PATIENCE, driver_error, explain, unsent
from storage.migrations import require
from storage.refusals import refusal

if TYPE_CHECKING:
    import asyncpg
    from sqlalchemy import Connection

    from storage.schema import Schema

T = TypeVar("T")

_CONNECTIONS: Final = 8
_MAX_WAITING: Final = 4096
_PROMPT: Final = 2.0  # s
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

    def __init__(self, connections: Connections, schema: str) -> None:
        self._connections = connections
        self._schema = schema
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    @classmethod
    def open(cls, url: str, schema: str, *, connections: int = _CONNECTIONS) -> Self:
        """A database whose connections are made when they are needed. Raises `CannotStartError`."""
        address = Address.parse(url)
        return cls(Connections(address, schema, _SERVER_SETTINGS, connections), schema)

    @classmethod
    async def checked(cls, url: str, schema: Schema) -> Self:
        """A database that was found to have the tables of `schema`. Raises `CannotStartError`."""
        database = cls.open(url, schema.name)
        try:
            await database.read(lambda connection: require(connection, schema))
        except BaseException as cause:
            await database.close()
            if isinstance(cause, Exception):
                raise refusal(cause, Address.parse(url).shown) from cause
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
        await self._connections.close()

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
        task.add_done_callback(self._end)
        return await asyncio.shield(task)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even where nobody waits any more

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
                failure = explain(cause, reading=begin is _READ)
                if failure is None:
                    raise
                late = asyncio.get_running_loop().time() + pause >= deadline
                if late or not failure.again or isinstance(cause, _UnknownOutcomeError):
                    _log.warning("transaction_failed", cause=type(driver_error(cause)).__name__)
                    raise failure.error from cause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _attempt(self, fn: Callable[[Connection], T], begin: str) -> T:
        pooled = await self._connections.take()
        driver = pooled.driver
        ended = False
        try:
            await self._begin(driver, begin)
            try:
                result = await pooled.run(fn)
            except Exception:
                await driver.execute("ROLLBACK", timeout=_PROMPT)
                ended = True
                raise
            status = await (driver.execute("COMMIT") if begin is _READ else _commit(driver))
            ended = True
        finally:
            if ended:
                self._connections.give_back(pooled)
            else:
                await self._connections.give_up(pooled)
        if status != "COMMIT":
            msg = "a statement failed and its transaction went on"  # the server rolled it back
            raise RuntimeError(msg)
        return result

    async def _begin(self, driver: asyncpg.Connection[Any], begin: str) -> None:
        """Begins at once or never: a connection that leads nowhere leaves time for another."""
        try:
            await driver.execute(begin, timeout=_PROMPT)
        except TimeoutError:
            self._connections.doubt()
            raise


class _UnknownOutcomeError(ConnectionError):
    """The connection went away while a commit was on its way."""


async def _commit(driver: asyncpg.Connection[Any]) -> str:
    """Commits; the answer is what the server made of it."""
    early = "the connection was closed before the commit"
    if driver.is_closed():
        raise ConnectionResetError(early)
    try:
        return cast("str", await driver.execute("COMMIT"))
    except (Exception, asyncio.CancelledError) as cause:  # cancelled by our own time limit alone
        if unsent(cause):
            raise ConnectionResetError(early) from cause
        msg = "the database went away during a commit"
        raise _UnknownOutcomeError(msg) from cause
