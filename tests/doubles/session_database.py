"""Databases with the session service's tables."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from services.session.store.schema import SCHEMA
from services.session.store.store import SqlSessionStore
from storage import open_database
from storage.migrate import migrate

_templates = WeakKeyDictionary()
_numbers = itertools.count(1)


async def migrated(cluster):
    """The URL of a new PostgreSQL database with the service's tables, and nothing in them."""
    template = _templates.get(cluster)
    if template is None:  # migrated once; the others are copies, which take a tenth of the time
        url = cluster.new_database()
        await migrate(url, SCHEMA)
        template = _templates[cluster] = url.rpartition("/")[2]
    name = f"session_{next(_numbers)}"
    cluster.execute(f"CREATE DATABASE {name} TEMPLATE {template}", database="postgres")
    return cluster.url(name)


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
