"""Databases for tests: any service's, on either engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import MetaData

from storage import Database, open_database
from storage.migrate import migrate
from storage.schema import Schema


@asynccontextmanager
async def migrated(url: str, schema: Schema) -> AsyncIterator[Database]:
    """A service's database at `url`, migrated first, as `drover up` does it."""
    await migrate(url, schema)
    database = await open_database(url, schema)
    yield database
    await database.close()


def schema_in(folder: Path, metadata: MetaData) -> Schema:
    """A schema of these tables, whose one revision makes none of them."""
    migrations = folder / "migrations"
    migrations.mkdir(exist_ok=True)
    (migrations / "0001_expand_nothing.py").write_text(
        'revision = "0001"\ndown_revision = None\n\n\ndef upgrade(op):\n    pass\n'
    )
    return Schema("test", metadata, migrations)
