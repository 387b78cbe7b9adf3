"""A database behind one small port: synchronous functions over SQLAlchemy Core, awaited.

def insert(connection: Connection) -> int: ...
seq = await database.write(insert)   # durable when this returns
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from chassis.db.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, MetaData

T = TypeVar("T")


class Database(Protocol):
    """Reads and durable writes of one service's own database.

    The functions run on another thread: they take what they need as values, do their statements on
    the given connection and return plain data. They neither commit nor roll back, and they hold no
    reference to the connection afterwards.
    """

    async def read(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` on a snapshot of what is committed. What it writes is refused."""
        ...

    async def write(self, fn: Callable[[Connection], T], /) -> T:
        """Runs `fn` in a transaction of its own effect and returns once that is durable.

        When `fn` raises, nothing of it is kept and its exception is raised here. Writes are
        acknowledged in the order in which they were made. A caller that is cancelled while it waits
        does not know whether its write was kept.
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
