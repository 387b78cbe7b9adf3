"""Databases for tests: any service's, on either engine."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest
from sqlalchemy import MetaData

from services.hands.store.schema import SCHEMA as HANDS
from services.registry.store.schema import SCHEMA as REGISTRY
from services.session.store.schema import SCHEMA as SESSION
from services.vault_proxy.store.schema import SCHEMA as VAULT_PROXY
from storage import Database, open_database, sqlite
from storage.migrate import migrate
from storage.schema import Schema
from tests.doubles.postgres import Cluster
from tests.doubles.standing import PromptExit

SCHEMAS = {schema.service: schema for schema in (REGISTRY, SESSION, HANDS, VAULT_PROXY)}
"""What each service keeps."""

_NAMES = itertools.count()
_FREE: WeakKeyDictionary[Cluster, defaultdict[str, list[str]]] = WeakKeyDictionary()
"""Databases that nobody uses now, by whose tables they have."""
_LEAVE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid();
"""


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has databases wait a minute for a busy machine, and not the seconds of production.

    Only how long they go on is changed: what fails for good still fails at once.
    """
    for module in ("storage.postgres", "storage.connections"):
        monkeypatch.setattr(f"{module}.PATIENCE", 60.0)
    pragmas = (one for one in sqlite._PRAGMAS if not one.startswith("busy_timeout"))
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*pragmas, "busy_timeout = 60000"))


@asynccontextmanager
async def opened(
    schema: Schema, folder: Path, cluster: Cluster | None, processes: int = 1
) -> AsyncIterator[list[Database]]:
    """An empty database of a service, as so many processes have it: in a cluster, or on SQLite."""
    async with PromptExit() as stack:
        if cluster is None:
            url = f"sqlite:///{folder / schema.service}.db"
            await migrate(url, schema)
        else:
            url = await stack.enter_async_context(lent(cluster, schema))
        databases = []
        for _ in range(processes):
            databases.append(await open_database(url, schema))
            stack.push_async_callback(databases[-1].close)
        yield databases


@asynccontextmanager
async def lent(cluster: Cluster, schema: Schema) -> AsyncIterator[str]:
    """The URL of a PostgreSQL database with a service's tables and nothing in them.

    Whoever asks next has the same one, emptied: to make and migrate one takes most of a second.
    """
    free = _FREE.setdefault(cluster, defaultdict(list))[schema.service]
    if free:
        url = free.pop()
        empty(cluster, schema, url)
    else:
        url = await made(cluster, schema)
    try:
        yield url
    finally:
        free.append(url)


async def made(cluster: Cluster, schema: Schema) -> str:
    """The URL of a new PostgreSQL database with a service's tables."""
    url = cluster.new_database()
    await migrate(url, schema)
    return url


def empty(cluster: Cluster, schema: Schema, url: str) -> None:
    """Deletes all that a service keeps in a PostgreSQL database, which nobody is to use now."""
    # Not row by row: what is deleted stays in the tables' files, and each test would read past it.
    tables = ", ".join(f"{schema.name}.{table.name}" for table in schema.metadata.sorted_tables)
    cluster.execute(f"{_LEAVE}TRUNCATE {tables};", database=url.rpartition("/")[2])


@asynccontextmanager
async def migrated(url: str, schema: Schema) -> AsyncIterator[Database]:
    """A service's database at `url`, migrated first, as `drover up` does it."""
    await migrate(url, schema)
    database = await open_database(url, schema)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def with_tables(url: str, metadata: MetaData, folder: Path) -> AsyncIterator[Database]:
    """A database at `url` with just these tables."""
    async with migrated(url, schema_in(folder, metadata)) as database:
        await database.write(metadata.create_all)
        yield database


def schema_in(folder: Path, metadata: MetaData) -> Schema:
    """A schema of these tables, whose one revision makes none of them."""
    return schema_of(folder, ["pass"], metadata)


def schema_of(folder: Path, upgrades: Sequence[str], metadata: MetaData | None = None) -> Schema:
    """A schema with these revisions, each given as the body of its `upgrade(op)`."""
    migrations = folder / f"migrations_{next(_NAMES)}"
    migrations.mkdir()
    before = None
    for number, body in enumerate(upgrades, start=1):
        revision = f"{number:04}"
        text = (
            f"revision = {revision!r}\ndown_revision = {before!r}\n\ndef upgrade(op):\n    {body}"
        )
        (migrations / f"{revision}_expand_test.py").write_text(text)
        before = revision
    return Schema("test", metadata or MetaData(), migrations)
