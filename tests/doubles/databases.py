"""Databases for tests: any service's, on either engine."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import MetaData

from services.hands.store.schema import SCHEMA as HANDS
from services.registry.store.schema import SCHEMA as REGISTRY
from services.session.store.schema import SCHEMA as SESSION
from services.vault_proxy.store.schema import SCHEMA as VAULT_PROXY
from storage import Database, open_database
from storage.migrate import migrate
from storage.schema import Schema

SCHEMAS = {schema.service: schema for schema in (REGISTRY, SESSION, HANDS, VAULT_PROXY)}
"""What each service keeps."""

_NAMES = itertools.count()


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
