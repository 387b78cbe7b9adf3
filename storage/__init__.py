"""A service's own database behind one small port: SQLite on a laptop, PostgreSQL in production."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from storage.schema import Schema

T = TypeVar("T")


class Database(Protocol):
    """Reads and durable writes of one service's own database.

    The functions are synchronous: they do their statements on the given connection and return plain
    data, they neither commit nor roll back, and they keep no reference to the connection. Nothing
    but the connection may remember what they did, since a function whose transaction was lost
    before its commit is run again.
    A function whose statement failed must fail too, unless it ran it in a savepoint.
    Constraints are immediate: a deferred one would fail the commit, and with it others' writes.
    """

    async def read(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` on a snapshot of what is committed. What it writes is refused."""
        ...

    async def write(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` in a transaction of its own effect and returns once that is durable.

        When `fn` raises, nothing of it is kept and its exception is raised here. A caller cancelled
        while it waits, or told UNAVAILABLE, does not know whether its write was kept. Raises
        UNAVAILABLE while the database does not answer, RESOURCE_EXHAUSTED when its disk is full or
        too many writes wait.
        """
        ...

    async def close(self) -> None:
        """Finishes the writes that were accepted, then closes every connection."""
        ...


async def open_database(url: str, schema: Schema) -> Database:
    """Opens the database of a service, with the tables that this release needs.

    An SQLite file is made, or brought up to date, if need be; PostgreSQL must have been migrated.
    Raises `CannotStartError` when it was not, when the database cannot be reached, and for an
    engine that Drover does not run on.
    """
    # An engine is imported where it is used: a laptop pays for no other.
    if url.startswith("sqlite:"):
        from storage.sqlite import SqliteDatabase

        return await SqliteDatabase.open(url, schema)
    from storage.postgres import PostgresDatabase

    return await PostgresDatabase.checked(url, schema)
