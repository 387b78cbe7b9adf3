"""Migration as an act of its own: what `drover migrate` does for one service."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from storage.address import Address, is_sqlite
from storage.failures import PATIENCE, explain
from storage.migrations import advance
from storage.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.connections import Connections
    from storage.schema import Schema

_LOCK_PATIENCE: Final = 60.0  # s
_PAUSE: Final = 0.5  # s

# A revision may take long but may not wait long: behind it waits everyone who uses the table.
_SERVER_SETTINGS: Final = {"lock_timeout": "2000", "statement_timeout": "0"}


async def migrate(
    url: str, schema: Schema, tell: Callable[[int], None] = lambda _revision: None
) -> None:
    """Applies the revisions that a database lacks, `tell`ing each once it is committed.

    Safe to run at any time, by several at once, and again after it was interrupted. Raises
    `CannotStartError` when the database cannot be used.
    """
    if is_sqlite(url):
        from storage.sqlite import migrate_file

        await asyncio.to_thread(migrate_file, url, schema, tell)
        return
    from storage.connections import Connections

    address = Address.parse(url)
    connections = Connections(address, schema.name, _SERVER_SETTINGS, size=1)
    try:
        while (revision := await _persist(connections, schema, address)) is not None:
            tell(revision)
    finally:
        await connections.close()


async def _persist(connections: Connections, schema: Schema, address: Address) -> int | None:
    """Applies one revision, however often others are in its way. Raises `CannotStartError`."""
    loop = asyncio.get_running_loop()
    asked = loop.time()
    patience = PATIENCE
    while True:
        try:
            pooled = await connections.take()
            patience = _LOCK_PATIENCE
            try:
                await pooled.driver.execute("BEGIN")
                revision = await pooled.run(partial(advance, schema=schema))
                await pooled.driver.execute("COMMIT")
            except BaseException:
                await connections.give_up(pooled)  # which rolls back
                raise
            connections.give_back(pooled)
        except Exception as cause:
            failure = explain(cause)
            if failure is None or not failure.again or loop.time() - asked > patience:
                raise refusal(cause, address.shown) from cause
        else:
            return revision
        await asyncio.sleep(_PAUSE)
