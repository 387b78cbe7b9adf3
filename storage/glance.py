"""A look into a service's database as it is: nothing is made, nothing is brought up to date."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from storage.address import Address, is_sqlite, shown
from storage.migrations import current
from storage.postgres import PostgresDatabase
from storage.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from storage.schema import Schema

T = TypeVar("T")

_PATIENCE: Final = 4.0  # s


async def glance(url: str, schema: Schema, fn: Callable[[Connection], T]) -> T | None:
    """What `fn` finds in the database of a service; nothing where it has no tables yet.

    Raises `CannotStartError` when the database cannot be used.
    """

    def look(connection: Connection) -> T | None:
        return fn(connection) if current(connection) else None

    if is_sqlite(url):
        return await asyncio.to_thread(_in_file, Path(shown(url)), look)
    database = PostgresDatabase.open(url, schema.name, connections=1)
    try:
        async with asyncio.timeout(_PATIENCE):
            return await database.read(look)
    except Exception as cause:
        raise refusal(cause, Address.parse(url).shown) from cause
    finally:
        await database.close()


def _in_file(path: Path, fn: Callable[[Connection], T]) -> T | None:
    if not path.exists():
        return None
    # A file that nobody has open is read without as much as a lock.
    alone = "" if Path(f"{path}-wal").exists() else "&immutable=1"
    where = f"file:{quote(str(path.absolute()))}?mode=ro{alone}"
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(where, uri=True), poolclass=NullPool
    )
    try:
        with engine.connect() as connection:
            return fn(connection)
    except Exception as cause:
        raise refusal(cause, str(path)) from cause
