"""What is left of something, in any table of any service's database or on disk."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.doubles.postgres import Cluster

_DATABASE_FILES = frozenset({".db", ".db-wal", ".db-shm"})


def in_sqlite(data: Path, needle: str) -> dict[str, int]:
    """How many rows of which tables mention `needle`, in text or in bytes."""
    found = {}
    for file in sorted(data.glob("*.db")):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            database.text_factory = bytes
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
                name = table.decode()
                rows = database.execute(f"SELECT * FROM {name}").fetchall()  # noqa: S608
                count = sum(any(_mentions(value, needle) for value in row) for row in rows)
                if count:
                    found[f"{file.stem}.{name}"] = count
    return found


def in_postgres(cluster: Cluster, database: str, needle: str) -> dict[str, int]:
    """As `in_sqlite`, over all schemas of a database."""
    tables = cluster.execute(
        "SELECT table_schema || '.' || table_name FROM information_schema.tables "
        "WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', "
        "'information_schema')",
        database=database,
    ).split()
    hexed = needle.encode().hex()  # as bytes are shown
    # One statement for all: each is a process of its own.
    counts = cluster.execute(
        " UNION ALL ".join(
            f"SELECT '{table}', count(*) FROM {table} AS one "  # noqa: S608
            f"WHERE one::text LIKE '%{needle}%' OR one::text LIKE '%{hexed}%'"
            for table in sorted(tables)
        ),
        database=database,
    )
    found = {}
    for line in counts.splitlines():
        table, _, count = line.partition("|")
        if int(count):
            found[table] = int(count)
    return found


def on_disk(folder: Path, needle: str) -> list[str]:
    """Paths that are named after `needle`, and files that hold it. Databases are left out."""
    found = []
    for parent, folders, files in os.walk(folder):  # which takes it well that things go meanwhile
        paths = [Path(parent, name) for name in (*folders, *files)]
        found += [path for path in paths if needle in path.name or _holds(path, needle)]
    return [str(path.relative_to(folder)) for path in found]


def _holds(path: Path, needle: str) -> bool:
    if path.suffix in _DATABASE_FILES:
        return False
    try:
        return needle.encode() in path.read_bytes()
    except OSError:  # no file, or one that goes as it is looked at
        return False


def _mentions(value: object, needle: str) -> bool:
    return isinstance(value, bytes) and needle.encode() in value
