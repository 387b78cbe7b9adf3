"""Memory stores in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from catalogue.resources.stamps import micros
from drover.memory.v1.memory_pb2 import MemoryStore
from services.registry.domain.memory.refusals import no_memory_store
from services.registry.store.memory.expiry import purge
from services.registry.store.memory.rows import hold_store, overwriting
from services.registry.store.memory.tables import MEMORIES, MEMORY_STORES
from services.registry.store.newest import newest
from storage.answers import withdraw
from storage.once import Answers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from services.registry.domain.ports import Listing
    from storage import Database

_S = MEMORY_STORES.c


class SqlMemoryStores:
    """Implements `MemoryStores`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._answers = Answers(database, clock)

    async def add(
        self, workspace_id: str, store: MemoryStore, once: Once[MemoryStore] | None = None
    ) -> MemoryStore:
        """Keeps a new store."""
        created_at = micros(store.created_at)
        statement = insert(MEMORY_STORES).values(
            id=store.id,
            workspace_id=workspace_id,
            created_at=created_at,
            revision=0,
            changed_at=created_at,
            memories=0,
            definition=store.SerializeToString(),
        )

        def write(connection: Connection) -> MemoryStore:
            connection.execute(statement)
            return store

        return await self._answers.write(write, once, store.id)

    async def get(self, workspace_id: str, store_id: str) -> MemoryStore:
        """Raises NOT_FOUND."""

        def read(connection: Connection) -> MemoryStore:
            return _load(connection, workspace_id, store_id)

        return await self._database.read(read)

    async def revise(
        self,
        workspace_id: str,
        store_id: str,
        change: Callable[[MemoryStore], MemoryStore],
        once: Once[MemoryStore] | None = None,
    ) -> MemoryStore:
        """Keeps what `change` makes of it. Raises NOT_FOUND."""

        def write(connection: Connection) -> MemoryStore:
            hold_store(connection, workspace_id, store_id)
            stored = _load(connection, workspace_id, store_id)
            changed = change(stored)
            if changed is not stored:
                archived = changed.HasField("archived_at")
                # Fence: the row is locked since it was read.
                connection.execute(
                    update(MEMORY_STORES)
                    .where(_S.id == store_id)
                    .values(
                        archived_at=micros(changed.archived_at) if archived else None,
                        definition=changed.SerializeToString(),
                    )
                )
            return changed

        return await self._answers.write(write, once, store_id)

    async def delete(self, workspace_id: str, store_id: str, once: Once[str] | None = None) -> None:
        """Deletes with all memories and versions. Raises NOT_FOUND."""

        def write(connection: Connection) -> str:
            hold_store(connection, workspace_id, store_id)
            overwriting(connection)
            connection.execute(delete(MEMORIES).where(MEMORIES.c.store_id == store_id))
            withdraw(connection, store_id)
            hidden = {"deleted_at": micros(self._clock.now()), "memories": 0, "definition": b""}
            connection.execute(update(MEMORY_STORES).where(_S.id == store_id).values(hidden))
            purge(connection, store_id)
            return store_id

        await self._answers.write(write, once)

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[MemoryStore]:
        """Stores, newest first."""
        present = select(_S.definition).where(_S.deleted_at.is_(None))
        query = newest(present, MEMORY_STORES, workspace_id, listing)

        def read(connection: Connection) -> Sequence[MemoryStore]:
            return [MemoryStore.FromString(found) for (found,) in connection.execute(query)]

        return await self._database.read(read)


def _load(connection: Connection, workspace_id: str, store_id: str) -> MemoryStore:
    query = select(_S.definition).where(
        _S.id == store_id, _S.workspace_id == workspace_id, _S.deleted_at.is_(None)
    )
    found = connection.execute(query).one_or_none()
    if found is None:
        raise no_memory_store(store_id)
    return MemoryStore.FromString(found.definition)
