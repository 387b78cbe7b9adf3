"""What memory needs of a store. Every call is scoped to one workspace, and raises NOT_FOUND.

A call with a `once` has its effect once, as in `services.registry.domain.ports`. One contract suite
(tests/contract/registry) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from catalogue.resources.once import Once
from drover.memory.v1.memory_pb2 import (
    Memory,
    MemoryOperation,
    MemoryStore,
    MemoryVersion,
)
from drover.memory.v1.memory_service_pb2 import MemoryListItem, StoreChanges, StorePosition
from services.registry.domain.memory.memory import Change, Origin
from services.registry.domain.ports import Listing


@dataclass(frozen=True, slots=True)
class MemoryListing:
    """Which part of a store's memories is asked for, by their paths.

    `directory` ends with its slash. `after` is the last item already seen, with its slash if it was
    a directory.
    """

    limit: int
    directory: str = "/"
    children_only: bool = False
    after: str | None = None
    with_content: bool = False


@dataclass(frozen=True, slots=True)
class VersionListing:
    """Which part of a store's history is asked for, newest first.

    Times are Unix microseconds, both ends included. `before` is the revision of the last one seen.
    """

    limit: int
    memory_id: str | None = None
    session_id: str | None = None
    api_key_id: str | None = None
    operation: MemoryOperation.ValueType | None = None
    created_from: int | None = None
    created_to: int | None = None
    before: int | None = None
    with_content: bool = False


class MemoryStores(Protocol):
    """The stores themselves."""

    async def add(
        self, workspace_id: str, store: MemoryStore, once: Once[MemoryStore] | None = None
    ) -> MemoryStore:
        """Keeps a new store, and answers it; durable on return."""
        ...

    async def get(self, workspace_id: str, store_id: str) -> MemoryStore:
        """A store."""
        ...

    async def revise(
        self,
        workspace_id: str,
        store_id: str,
        change: Callable[[MemoryStore], MemoryStore],
        once: Once[MemoryStore] | None = None,
    ) -> MemoryStore:
        """Keeps what `change` makes of the store, and answers it; durable on return.

        `change` runs on another thread, is pure, and answers its argument to say that there is
        nothing to keep; what it raises is raised here.
        """
        ...

    async def delete(self, workspace_id: str, store_id: str, once: Once[str] | None = None) -> None:
        """Deletes with all memories and versions; a `once` is given its id.

        What does not go at once is not seen any more, and goes as others' writes let it.
        """
        ...

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[MemoryStore]:
        """Stores, newest first."""
        ...


class Memories(Protocol):
    """Memories. Each change of one is a version, and the next revision of its store.

    Times are those of the changes' origins, or of the store's last one where a clock was behind.
    """

    async def add(
        self,
        workspace_id: str,
        memory: Memory,
        origin: Origin,
        once: Once[Memory] | None = None,
    ) -> Memory:
        """Keeps a new memory and answers it with its content.

        Raises ARCHIVED, CONFLICT as `path_conflict`, and INVALID_ARGUMENT for a full store.
        """
        ...

    async def get(self, workspace_id: str, store_id: str, memory_id: str) -> Memory:
        """A memory with its content."""
        ...

    async def change(
        self,
        workspace_id: str,
        store_id: str,
        memory_id: str,
        change: Change,
        once: Once[Memory] | None = None,
    ) -> Memory:
        """Changes a memory and answers it with its content. Raises ARCHIVED and CONFLICT."""
        ...

    async def delete(
        self,
        workspace_id: str,
        store_id: str,
        memory_id: str,
        change: Change,
        once: Once[str] | None = None,
    ) -> None:
        """Deletes a memory, of an archived store too; a `once` is given its id. Raises CONFLICT."""
        ...

    async def page(
        self, workspace_id: str, store_id: str, listing: MemoryListing
    ) -> Sequence[MemoryListItem]:
        """Memories, or children of a directory, in the order of their paths' code points."""
        ...

    async def follow(
        self, workspace_id: str, positions: Sequence[StorePosition]
    ) -> Sequence[StoreChanges]:
        """What has become of stores, in the order of `positions`; nothing raises."""
        ...


class MemoryVersions(Protocol):
    """The history of memories."""

    async def get(self, workspace_id: str, store_id: str, version_id: str) -> MemoryVersion:
        """A version with its content."""
        ...

    async def page(
        self, workspace_id: str, store_id: str, listing: VersionListing
    ) -> Sequence[tuple[MemoryVersion, int]]:
        """Versions, newest first, each with the revision that it made."""
        ...

    async def redact(
        self,
        workspace_id: str,
        store_id: str,
        version_id: str,
        origin: Origin,
        once: Once[MemoryVersion] | None = None,
    ) -> MemoryVersion:
        """Removes what a version says for good; one that is redacted keeps its time.

        Raises INVALID_ARGUMENT for the version that holds a memory's present content.
        """
        ...
