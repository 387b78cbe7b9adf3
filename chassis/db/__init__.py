"""A database behind one small port: synchronous functions over SQLAlchemy Core, awaited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection, MetaData

from chassis.db.sqlite import SqliteDatabase

T = TypeVar("T")


class Database(Protocol):
    """Reads and durable writes of one service's own database.

    The functions run on another thread: they do their statements on the given connection and return
    plain data, they neither commit nor roll back, and they keep no reference to the connection.
    Constraints are immediate: a deferred one would fail the commit, and with it others' writes.
    """

    async def read(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` on a snapshot of what is committed. What it writes is refused."""
        ...

    async def write(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` in a transaction of its own effect and returns once that is durable.

        When `fn` raises, nothing of it is kept and its exception is raised here. Writes are run and
        acknowledged in the order in which they were made. A caller cancelled while it waits does
        not know whether its write was kept.
        """
        ...

    async def close(self) -> None:
        """Finishes the writes that were accepted, then closes every connection."""
        ...


async def open_database(url: str, metadata: MetaData) -> Database:
    """Opens the database at an SQLAlchemy `url`, creating the tables of `metadata` that it lacks.

    Raises `ValueError` for an engine that Drover does not run on.
    """
    if url.startswith("sqlite:"):
        return await SqliteDatabase.open(url, metadata)
    msg = f"no database engine for {url.partition(':')[0]!r}: use sqlite:///<absolute path>"
    raise ValueError(msg)
