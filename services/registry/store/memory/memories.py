"""Memories in SQL. A store's row is the fence for every change of its memories."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, insert, or_, select, update

from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.memory.v1.memory_pb2 import (
    MEMORY_OPERATION_CREATED,
    MEMORY_OPERATION_DELETED,
    MEMORY_OPERATION_MODIFIED,
    Memory,
)
from services.registry.domain.memory.memory import (
    changed_memory,
    recalled,
    refuse_unexpected,
    without_text,
)
from services.registry.domain.memory.paths import below, self_and_ancestors
from services.registry.domain.memory.refusals import (
    MAX_MEMORIES,
    no_memory,
    path_conflict,
    store_full,
)
from services.registry.store.memory.following import changes_since
from services.registry.store.memory.listing import items
from services.registry.store.memory.rows import (
    MEMORY_COLUMNS,
    add_version,
    hold_store,
    memory_of,
    require_store,
    step,
)
from services.registry.store.memory.tables import MEMORIES, MEMORY_VERSIONS
from services.registry.store.memory.versions import load_version
from storage.once import Answers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from drover.memory.v1.memory_service_pb2 import MemoryListItem, StoreChanges, StorePosition
    from services.registry.domain.memory.memory import Change, Origin
    from services.registry.domain.memory.ports import MemoryListing
    from services.registry.store.memory.rows import Step
    from storage import Database

_M, _V = MEMORIES.c, MEMORY_VERSIONS.c


class SqlMemories:
    """Implements `Memories`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._answers = Answers(database, clock)

    async def add(
        self,
        workspace_id: str,
        memory: Memory,
        origin: Origin,
        once: Once[Memory] | None = None,
    ) -> Memory:
        """Keeps a new memory. Raises as `Memories`."""

        def write(connection: Connection) -> Memory:
            held = hold_store(connection, workspace_id, memory.memory_store_id, writing=True)
            _refuse_conflict(connection, memory)
            if held.memories >= MAX_MEMORIES:
                raise store_full(held.id)
            made = step(connection, held, micros(origin.at), memories=1)
            added = Memory()
            added.CopyFrom(memory)
            added.created_at.FromMicroseconds(made.at)
            added.updated_at.FromMicroseconds(made.at)
            connection.execute(
                insert(MEMORIES).values(
                    id=added.id,
                    store_id=held.id,
                    created_at=made.at,
                    **_changing(added, made),
                )
            )
            add_version(connection, added, MEMORY_OPERATION_CREATED, origin.by, made)
            return added

        return await self._write(workspace_id, memory.memory_store_id, write, once)

    async def get(self, workspace_id: str, store_id: str, memory_id: str) -> Memory:
        """A memory with its content. Raises NOT_FOUND."""

        def read(connection: Connection) -> Memory:
            require_store(connection, workspace_id, store_id)
            return _load(connection, store_id, memory_id)

        return await self._database.read(read)

    async def change(
        self,
        workspace_id: str,
        store_id: str,
        memory_id: str,
        change: Change,
        once: Once[Memory] | None = None,
    ) -> Memory:
        """Changes a memory. Raises as `Memories`."""

        def write(connection: Connection) -> Memory:
            held = hold_store(connection, workspace_id, store_id, writing=True)
            stored = _load(connection, store_id, memory_id)
            changed = changed_memory(stored, change)
            if changed is stored:
                return stored
            if changed.path != stored.path:
                _refuse_conflict(connection, changed)
            made = step(connection, held, micros(change.origin.at))
            changed.updated_at.FromMicroseconds(made.at)
            # Fence: the store's row is locked since the memory was read.
            connection.execute(
                update(MEMORIES).where(_M.id == memory_id).values(**_changing(changed, made))
            )
            add_version(connection, changed, MEMORY_OPERATION_MODIFIED, change.origin.by, made)
            return changed

        return await self._write(workspace_id, store_id, write, once)

    async def delete(
        self,
        workspace_id: str,
        store_id: str,
        memory_id: str,
        change: Change,
        once: Once[str] | None = None,
    ) -> None:
        """Deletes a memory. Raises as `Memories`."""

        def write(connection: Connection) -> str:
            held = hold_store(connection, workspace_id, store_id)
            stored = _load(connection, store_id, memory_id, with_content=False)
            refuse_unexpected(stored, change)
            made = step(connection, held, micros(change.origin.at), memories=-1)
            connection.execute(delete(MEMORIES).where(_M.id == memory_id))
            stored.memory_version_id = change.version_id
            add_version(connection, stored, MEMORY_OPERATION_DELETED, change.origin.by, made)
            return memory_id

        await self._answers.write(write, once, store_id)

    async def page(
        self, workspace_id: str, store_id: str, listing: MemoryListing
    ) -> Sequence[MemoryListItem]:
        """Memories, or children of a directory. Raises NOT_FOUND."""

        def read(connection: Connection) -> Sequence[MemoryListItem]:
            require_store(connection, workspace_id, store_id)
            return items(connection, store_id, listing)

        return await self._database.read(read)

    async def follow(
        self, workspace_id: str, positions: Sequence[StorePosition]
    ) -> Sequence[StoreChanges]:
        """What has become of stores."""

        def read(connection: Connection) -> Sequence[StoreChanges]:
            return changes_since(connection, workspace_id, positions)

        return await self._database.read(read)

    async def _write(
        self,
        workspace_id: str,
        store_id: str,
        fn: Callable[[Connection], Memory],
        once: Once[Memory] | None,
    ) -> Memory:
        """Writes once. What a memory says is kept in its versions alone, where it is redacted."""
        if once is None:
            return await self._database.write(fn)
        lean = replace(once, pack=lambda memory: once.pack(without_text(memory)))
        memory = await self._answers.write(fn, lean, store_id)
        once.replayed = lean.replayed
        if not once.replayed:
            return memory

        def read(connection: Connection) -> Memory:
            require_store(connection, workspace_id, store_id)
            version = load_version(connection, store_id, memory.memory_version_id)
            if not version.HasField("content"):
                raise DroverError(Reason.NOT_FOUND, "what the request had made was redacted since")
            return recalled(memory, version)

        return await self._database.read(read)


def _load(
    connection: Connection, store_id: str, memory_id: str, *, with_content: bool = True
) -> Memory:
    query = select(*MEMORY_COLUMNS)
    if with_content:
        query = select(*MEMORY_COLUMNS, _V.content).join_from(
            MEMORIES, MEMORY_VERSIONS, _V.id == _M.version_id
        )
    query = query.where(_M.id == memory_id, _M.store_id == store_id)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise no_memory(memory_id)
    return memory_of(found, found.content if with_content else None)


def _changing(memory: Memory, made: Step) -> dict[str, Any]:
    """The columns that a change writes."""
    return {
        "path": memory.path,
        "version_id": memory.memory_version_id,
        "revision": made.revision,
        "content_sha256": memory.content_sha256,
        "content_size": memory.content_size_bytes,
        "updated_at": made.at,
    }


def _refuse_conflict(connection: Connection, memory: Memory) -> None:
    """Raises CONFLICT where another memory is at the path, above it, or below it."""
    inside = below(f"{memory.path}/")
    query = (
        select(_M.id, _M.path)
        .where(
            _M.store_id == memory.memory_store_id,
            _M.id != memory.id,
            or_(
                _M.path.in_(self_and_ancestors(memory.path)),
                and_(_M.path >= inside.first, _M.path < inside.end),
            ),
        )
        .order_by(_M.path)
        .limit(1)
    )
    found = connection.execute(query).one_or_none()
    if found is not None:
        raise path_conflict(memory.path, found.id, found.path)
