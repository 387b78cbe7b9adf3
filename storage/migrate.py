"""Migration as an act of its own: what `drover migrate` does for one service."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from storage.migrations import advance

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.schema import Schema


async def migrate(
    url: str, schema: Schema, tell: Callable[[int], None] = lambda _revision: None
) -> None:
    """Applies the revisions that a database lacks, `tell`ing each once it is committed.

    Safe to run at any time, by several at once, and again after it was interrupted. Raises
    `CannotStartError` when the database cannot be used, `ValueError` for a URL that names none.
    """
    if url.startswith("sqlite:"):
        from storage.sqlite import migrate_file

        await asyncio.to_thread(migrate_file, url, schema, tell)
        return
    from storage.postgres import PostgresDatabase

    database = PostgresDatabase.open(url, schema.name, connections=1)
    try:
        while (revision := await database.write(partial(advance, schema=schema))) is not None:
            tell(revision)
    finally:
        await database.close()
