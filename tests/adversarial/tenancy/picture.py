"""All rows of all databases that say anything of a workspace: to see whether any has changed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Picture = Counter[tuple[Any, ...]]


def taken(data: Path, words: Collection[str]) -> Picture:
    """The rows with one of these words in them, each with its database and table."""
    sought = [word.encode() for word in words]
    return Counter(
        (file.stem, table, *row)
        for file in sorted(data.glob("*.db"))
        for table, row in _rows(file)
        if any(word in cell for cell in map(_bytes, row) for word in sought)
    )


def _rows(file: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in names:
            for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608  # its own names
                yield table, row


def _bytes(cell: object) -> bytes:
    return cell if isinstance(cell, bytes) else str(cell).encode()
