"""What one service keeps in its database, and where the steps that lead there are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Column, Integer, MetaData, String, Table


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one service.

    `migrations` is the directory of its Alembic revisions, files named `NNNN_expand_….py` or
    `NNNN_contract_….py` in the order in which they are applied. `oldest` is the first revision
    whose code still runs on the newest tables: a contracting revision raises it.
    """

    service: str
    metadata: MetaData
    migrations: Path
    oldest: int = 1

    @property
    def name(self) -> str:
        """Its schema in PostgreSQL."""
        return f"drover_{self.service}"

    @property
    def revisions(self) -> list[int]:
        """The numbers of its revisions, in order."""
        # From the names: no start of a service waits for Alembic unless there is work for it.
        return sorted(int(file.name[:4]) for file in self.migrations.glob("[0-9]*.py"))

    @property
    def head(self) -> int:
        """The revision that this release needs."""
        return self.revisions[-1]


# Beside a service's own tables, in the format that Alembic's tools know.
BOOKKEEPING = MetaData()

ALEMBIC_VERSION = Table(
    "alembic_version",
    BOOKKEEPING,
    Column("version_num", String(32), primary_key=True),
)

# The oldest revision whose code can run on these tables: how a release knows that tables newer than
# itself will do.
SCHEMA_FLOOR = Table("schema_floor", BOOKKEEPING, Column("oldest", Integer, primary_key=True))
