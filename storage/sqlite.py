"""SQLite behind the `Database` port: one writer thread with group commit, a few reader threads.

SQLite allows one writer at a time and a durable commit costs an fsync, so all writes that wait
share one transaction: each runs in a savepoint of its own, one commit makes them durable, and only
then is any of them acknowledged.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

import sqlalchemy.exc
import structlog
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool

from chassis.errors import CannotStartError, DroverError, Reason
from storage.failures import explain
from storage.migrations import advance, current
from storage.refusals import refusal
from storage.schema import Schema

T = TypeVar("T")

# A commit shared by more writes gains nothing, and makes the first of them wait.
_MAX_GROUP = 128
# Beyond this many waiting writes the process is overloaded and says so.
_MAX_WAITING = 4096
_READERS = 3
_RETRY_SECONDS = 1.0
_CLOSED = "the database is closed"
_log = structlog.get_logger("storage.sqlite")
_PRAGMAS = "journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "busy_timeout = 5000"


@dataclass(slots=True, eq=False)
class _Write:
    """One accepted write, its caller's future and, once run, what came of it."""

    fn: Callable[[Connection], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class SqliteDatabase:
    """One SQLite file. Made by `open`, on the event loop that will use it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._waiting = 0
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        # The writer's own, there before any write is accepted: none waits for what never comes.
        self._connection: Connection
        self._writer = threading.Thread(target=self._write_loop, name="sqlite-writer", daemon=True)
        self._reader_threads = ThreadPoolExecutor(_READERS, thread_name_prefix="sqlite-reader")
        self._local = threading.local()
        self._readers: list[Connection] = []

    @classmethod
    async def open(cls, url: str, schema: Schema) -> Self:
        """Opens the file, creating it and bringing its tables to what `schema` says.

        Raises `CannotStartError`, also for a database in memory, which each connection would have
        for itself.
        """
        engine = _engine(url)
        database = cls(engine)
        database._connection = await asyncio.to_thread(_prepared, engine, schema)
        database._writer.start()
        return database

    async def read(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` on a snapshot in a reader thread. Raises what `fn` raises."""
        if self._closed:
            raise DroverError(Reason.UNAVAILABLE, _CLOSED)
        return await self._loop.run_in_executor(self._reader_threads, self._read, fn)

    async def write(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` in the writer thread. RESOURCE_EXHAUSTED at once when too many writes wait."""
        if self._closed:
            raise DroverError(Reason.UNAVAILABLE, _CLOSED)
        if self._waiting >= _MAX_WAITING:
            raise DroverError(Reason.RESOURCE_EXHAUSTED, "too many writes wait", retry_after=0.1)
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting += 1
        self._queue.put(_Write(fn, future))
        return await future

    async def close(self) -> None:
        """Finishes the accepted writes and running reads, then closes every connection."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._reader_threads.shutdown)
        for connection in self._readers:
            connection.close()

    def _acknowledge(self, group: list[_Write]) -> None:
        self._waiting -= len(group)
        for write in group:
            if write.future.done():  # its caller was cancelled
                continue
            if write.error is None:
                write.future.set_result(write.result)
            elif isinstance(write.error, StopIteration):  # which a future refuses to carry
                write.future.set_exception(RuntimeError(repr(write.error)))
            else:
                write.future.set_exception(write.error)

    # What follows runs on the reader threads and on the writer thread. Transactions are driven
    # through the driver's connection: SQLAlchemy's begin and commit cost several times as much.

    def _read(self, fn: Callable[[Connection], T]) -> T:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._open_reader()
        _driver(connection).execute("BEGIN")
        try:
            return fn(connection)
        except sqlalchemy.exc.DBAPIError as error:
            raise _told(error, reading=True) from error
        finally:
            _driver(connection).rollback()

    def _open_reader(self) -> Connection:
        """Raises as a read does: without descriptors, say, there is none to be had just now."""
        try:
            connection = self._engine.connect()
        except (sqlalchemy.exc.DBAPIError, sqlite3.Error) as error:
            raise _told(error, reading=True) from error
        self._readers.append(connection)
        _driver(connection).execute("PRAGMA query_only = ON")
        return connection

    def _write_loop(self) -> None:
        with self._connection as connection:
            while (first := self._queue.get()) is not None:
                group = self._run_group(first, connection)
                self._loop.call_soon_threadsafe(self._acknowledge, group)

    def _run_group(self, first: _Write, connection: Connection) -> list[_Write]:
        """Runs `first`, and what has come by the time it is done, in one transaction."""
        group = [first]
        driver = _driver(connection)
        try:
            driver.execute("BEGIN IMMEDIATE")
            for write in group:  # grows as it goes
                if not write.future.cancelled():
                    _run_one(write, connection, driver)
                if len(group) < _MAX_GROUP and (waiting := self._next_waiting()) is not None:
                    group.append(waiting)
            driver.execute("COMMIT")
        except Exception as cause:  # noqa: BLE001  # every caller of the group is told
            driver.rollback()
            for write in group:
                if write.error is None:
                    write.error = _told(cause, lost=True)
        return group

    def _next_waiting(self) -> _Write | None:
        try:
            write = self._queue.get_nowait()
        except queue.Empty:
            return None
        if write is None:
            self._queue.put(None)  # closing: nothing comes after it, so the loop sees it next
        return write


def _run_one(write: _Write, connection: Connection, driver: sqlite3.Connection) -> None:
    """Runs one write in its savepoint, so that it fails alone.

    Raises only when the whole transaction is lost: the engine gives it up on a full disk and the
    like, and then the savepoint is gone too.
    """
    driver.execute("SAVEPOINT one")
    try:
        write.result = write.fn(connection)
    except BaseException as error:  # noqa: BLE001  # raised in its caller's task
        write.error = _told(error)
        driver.execute("ROLLBACK TO one")
    driver.execute("RELEASE one")


def _told(cause: BaseException, *, reading: bool = False, lost: bool = False) -> BaseException:
    """What the caller of a transaction is told of an exception out of it; `lost` if not its own."""
    failure = explain(cause, reading=reading)
    if failure is not None:
        failure.error.__cause__ = cause
        return failure.error
    if not lost:
        return cause
    error = DroverError(
        Reason.UNAVAILABLE, "the database did not commit the write", retry_after=_RETRY_SECONDS
    )
    error.__cause__ = cause
    return error


def _prepared(engine: Engine, schema: Schema) -> Connection:
    """A connection to a file that has what `schema` says. Raises `CannotStartError`."""
    _migrate(engine, schema, _note)
    try:
        return engine.connect()
    except Exception as cause:
        raise refusal(cause, str(engine.url.database)) from cause


def migrate_file(url: str, schema: Schema, tell: Callable[[int], None]) -> None:
    """Applies the revisions that a file lacks, `tell`ing each. Raises as `open` does."""
    _migrate(_engine(url), schema, tell)


def _engine(url: str) -> Engine:
    # Every thread keeps the one connection that it opens, so there is nothing to pool.
    engine = create_engine(url, poolclass=NullPool)
    if engine.url.database in {None, "", ":memory:"}:
        msg = "a database in memory has no durability and cannot be shared: name a file"
        raise CannotStartError(msg)
    event.listen(engine, "connect", _configure)
    return engine


def _migrate(engine: Engine, schema: Schema, tell: Callable[[int], None]) -> None:
    """Applies the revisions that the file lacks; who comes at the same time waits meanwhile."""
    try:
        _advance(engine, schema, tell)
    except Exception as cause:
        raise refusal(cause, str(engine.url.database)) from cause


def _advance(engine: Engine, schema: Schema, tell: Callable[[int], None]) -> None:
    with engine.connect() as connection:
        if current(connection) == schema.head:
            return
        driver = _driver(connection)
        # A table that is rebuilt would take with it what refers to it.
        driver.execute("PRAGMA foreign_keys = OFF")
        revision: int | None = 0
        while revision is not None:
            driver.execute("BEGIN IMMEDIATE")
            try:
                revision = advance(connection, schema)
            except BaseException:
                driver.rollback()
                raise
            driver.execute("COMMIT")
            if revision is not None:
                tell(revision)


def _note(revision: int) -> None:
    _log.info("migrated", revision=revision)


def _driver(connection: Connection) -> sqlite3.Connection:
    return cast("sqlite3.Connection", connection.connection.driver_connection)


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    # The driver then opens no transaction of its own accord: we say BEGIN ourselves.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
