"""A memory store's life: made, changed, archived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalogue.resources.metadata import merge
from catalogue.resources.presence import given
from drover.memory.v1.memory_pb2 import MemoryStore
from services.registry.domain.memory.refusals import store_archived

if TYPE_CHECKING:
    from datetime import datetime

    from drover.memory.v1.memory_store_service_pb2 import (
        CreateMemoryStoreRequest,
        UpdateMemoryStoreRequest,
    )


def new_memory_store(
    request: CreateMemoryStoreRequest, store_id: str, now: datetime
) -> MemoryStore:
    """The store that `request` describes."""
    store = MemoryStore(
        id=store_id,
        name=request.name,
        description=request.description,
        metadata=request.metadata,
    )
    store.created_at.FromDatetime(now)
    store.updated_at.FromDatetime(now)
    return store


def updated_memory_store(
    stored: MemoryStore, request: UpdateMemoryStoreRequest, now: datetime
) -> MemoryStore:
    """`stored` with what `request` gives, or `stored` itself where that changes nothing.

    Raises ARCHIVED, and INVALID_ARGUMENT for too much metadata.
    """
    if stored.HasField("archived_at"):
        raise store_archived(stored.id)
    named = given(request)
    store = MemoryStore()
    store.CopyFrom(stored)
    if "name" in named and request.HasField("name"):  # null keeps
        store.name = request.name
    if "description" in named:
        store.description = request.description
    if "metadata" in named:
        if not request.HasField("metadata"):
            store.metadata.clear()
        merge(store.metadata, request.metadata)
    if store == stored:
        return stored
    store.updated_at.FromDatetime(now)
    return store


def archived_memory_store(stored: MemoryStore, now: datetime) -> MemoryStore:
    """`stored`, archived; one that is archived already keeps its time."""
    if stored.HasField("archived_at"):
        return stored
    store = MemoryStore()
    store.CopyFrom(stored)
    store.archived_at.FromDatetime(now)
    store.updated_at.FromDatetime(now)
    return store
