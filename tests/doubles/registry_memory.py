"""Memory of a registry as its processes have it, with ids and times of the tests' own."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from chassis.clock import SystemClock
from drover.memory.v1.memory_pb2 import Actor, Memory, MemoryStore, MemoryVersion
from drover.memory.v1.memory_service_pb2 import CreateMemoryRequest, StorePosition
from services.registry.domain.memory.memory import Change, Origin, new_memory
from services.registry.domain.memory.ports import MemoryListing, VersionListing
from services.registry.store.memory.expiry import Expiry
from services.registry.store.memory.memories import SqlMemories
from services.registry.store.memory.stores import SqlMemoryStores
from services.registry.store.memory.versions import SqlMemoryVersions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.memory.v1.memory_service_pb2 import StoreChanges
    from storage import Database

HOME, ELSEWHERE = "wrkspc_home", "wrkspc_elsewhere"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)

_NUMBERS = itertools.count(1)


def key(name: str) -> Actor:
    made = Actor()
    made.api_actor.api_key_id = f"apikey_{name}"
    return made


def session(name: str) -> Actor:
    made = Actor()
    made.session_actor.session_id = f"sesn_{name}"
    return made


def a_store(**fields: Any) -> MemoryStore:
    """A new one, newer than those before, and a day old."""
    number = next(_NUMBERS)
    made = MemoryStore(id=f"memstore_{number:06}", **{"name": "Notes", **fields})
    made.created_at.FromDatetime(NOON + timedelta(days=-1, seconds=number))
    made.updated_at.CopyFrom(made.created_at)
    return made


def a_memory(store_id: str, path: str, content: str = "text") -> Memory:
    request = CreateMemoryRequest(memory_store_id=store_id, path=path, content=content)
    number = next(_NUMBERS)
    return new_memory(request, f"mem_{number:06}", f"memver_{number:06}")


def a_change(by: Actor | None = None, at: datetime = NOON, **fields: Any) -> Change:
    return Change(f"memver_{next(_NUMBERS):06}", Origin(by, at), **fields)


@dataclass
class Shifted(SystemClock):
    """A clock that is ahead."""

    ahead: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return super().now() + self.ahead


class MemoryReplica:
    """One process's memory; what its calls have in common is left out."""

    def __init__(self, database: Database) -> None:
        clock = SystemClock()
        self.database = database
        self.stores = SqlMemoryStores(database, clock)
        self.memories = SqlMemories(database, clock)
        self.versions = SqlMemoryVersions(database, clock)

    async def store(self, **fields: Any) -> str:
        """The id of a new store."""
        return (await self.stores.add(HOME, a_store(**fields))).id

    async def add(
        self, store_id: str, path: str, content: str = "text", by: Actor | None = None
    ) -> Memory:
        memory = a_memory(store_id, path, content)
        return await self.memories.add(HOME, memory, Origin(by, NOON))

    async def change(self, memory: Memory, by: Actor | None = None, **fields: Any) -> Memory:
        store_id = memory.memory_store_id
        return await self.memories.change(HOME, store_id, memory.id, a_change(by, **fields))

    async def delete(self, memory: Memory, by: Actor | None = None, **fields: Any) -> None:
        store_id = memory.memory_store_id
        await self.memories.delete(HOME, store_id, memory.id, a_change(by, **fields))

    async def read(self, memory: Memory) -> Memory:
        return await self.memories.get(HOME, memory.memory_store_id, memory.id)

    async def listed(self, store_id: str, limit: int = 100, **fields: Any) -> list[str]:
        """Paths of a list's items."""
        items = await self.memories.page(HOME, store_id, MemoryListing(limit, **fields))
        return [item.memory.path or item.memory_prefix.path for item in items]

    async def history(self, store_id: str, limit: int = 100, **fields: Any) -> list[MemoryVersion]:
        """Versions with their content."""
        listing = VersionListing(limit, with_content=True, **fields)
        return [version for version, _ in await self.versions.page(HOME, store_id, listing)]

    async def follow(self, store_id: str, since: int = 0) -> StoreChanges:
        position = StorePosition(memory_store_id=store_id, revision=since)
        [changes] = await self.memories.follow(HOME, [position])
        return changes

    async def expire(self, ahead: timedelta) -> int:
        """Removes what has to go by then; answers in how many transactions."""
        expiry = Expiry(self.database, Shifted(ahead))
        times = 1
        while await expiry.some():
            times += 1
        return times

    async def kept(self, table: Any) -> Sequence[Any]:
        """All rows of a table."""
        return await self.database.read(lambda connection: connection.execute(table.select()).all())
