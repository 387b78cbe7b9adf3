"""Versions that are kept no longer, and those of stores that were deleted: they go bit by bit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog
from sqlalchemy import delete, select

from catalogue.resources.stamps import micros
from chassis.errors import DroverError
from services.registry.store.memory.rows import overwriting
from services.registry.store.memory.tables import MEMORY_STORES, MEMORY_VERSIONS

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from chassis.clock import Clock
    from storage import Database

BATCH: Final = 200
"""Versions that one transaction removes: 20 MB at the most, for which other writes wait."""

_SWEEP_SECONDS: Final = 60.0

_S, _V = MEMORY_STORES.c, MEMORY_VERSIONS.c

_log = structlog.get_logger("registry.memory")


def purge(connection: Connection, store_id: str) -> bool:
    """Removes versions of a store that was deleted, and the store with its last; says if it did."""
    some = select(_V.id).where(_V.store_id == store_id).order_by(_V.revision).limit(BATCH)
    removed = connection.execute(delete(MEMORY_VERSIONS).where(_V.id.in_(some))).rowcount
    if removed == BATCH:
        return False
    connection.execute(delete(MEMORY_STORES).where(_S.id == store_id))
    return True


class Expiry:
    """What removes from a database what has to go."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def sweep(self) -> None:
        """Removes what has to go, now and then, for ever."""
        while True:
            try:
                while await self.some():
                    pass
            except DroverError as error:
                _log.warning("memory_not_swept", reason=error.reason)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def some(self) -> bool:
        """Removes a part of it in one transaction; says whether there may be more."""
        now = micros(self._clock.now())

        def write(connection: Connection) -> bool:
            overwriting(connection)
            # Of two replicas that sweep, neither waits.
            gone = select(_S.id).where(_S.deleted_at.is_not(None)).limit(1)
            store_id = connection.scalar(gone.with_for_update(skip_locked=True))
            if store_id is not None:
                purge(connection, store_id)
                return True
            some = select(_V.id).where(_V.expires_at <= now).order_by(_V.expires_at).limit(BATCH)
            some = some.with_for_update(skip_locked=True)
            removed = connection.execute(delete(MEMORY_VERSIONS).where(_V.id.in_(some))).rowcount
            return removed == BATCH

        return await self._database.write(write)
