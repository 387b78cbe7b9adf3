"""Stores of sessions on databases with the session service's tables."""

from __future__ import annotations

from contextlib import asynccontextmanager

from services.session.store.schema import SCHEMA
from services.session.store.store import SqlSessionStore
from storage import open_database


@asynccontextmanager
async def opened(url, clock):
    """A store on the database at `url`."""
    database = await open_database(url, SCHEMA)
    sql = SqlSessionStore(database, clock)
    try:
        yield sql
    finally:
        await sql.close()
        await database.close()
