"""MemoryStoreService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import bound, micros
from chassis.context import current_call
from drover.memory.v1 import memory_store_service_pb2 as pb
from drover.memory.v1.memory_store_service_pb2_grpc import MemoryStoreServiceServicer
from services.registry.domain.memory.definition import (
    archived_memory_store,
    new_memory_store,
    updated_memory_store,
)
from services.registry.domain.ports import Listing
from services.registry.rpc.once import is_new, once

if TYPE_CHECKING:
    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.memory.v1.memory_pb2 import MemoryStore
    from services.registry.domain.memory.ports import MemoryStores
    from services.registry.rpc.once import Context

_log = structlog.get_logger("registry.memory_stores")


class MemoryStoreRpc(MemoryStoreServiceServicer):
    """Serves memory stores, within the calling workspace."""

    def __init__(self, stores: MemoryStores, clock: Clock, ids: IdSource) -> None:
        self._stores = stores
        self._clock = clock
        self._ids = ids

    async def CreateMemoryStore(
        self, request: pb.CreateMemoryStoreRequest, context: Context
    ) -> pb.CreateMemoryStoreResponse:
        """Creates an empty store."""
        made = new_memory_store(request, self._ids("memstore"), self._clock.now())
        call = once(pb.CreateMemoryStoreResponse, "memory_store")
        store = await self._stores.add(current_call().workspace_id, made, call)
        if is_new(call, context):
            _log.info("memory_store_created", memory_store_id=store.id)
        return pb.CreateMemoryStoreResponse(memory_store=store)

    async def GetMemoryStore(
        self, request: pb.GetMemoryStoreRequest, _context: object
    ) -> pb.GetMemoryStoreResponse:
        """Reads a store."""
        store = await self._stores.get(current_call().workspace_id, request.memory_store_id)
        return pb.GetMemoryStoreResponse(memory_store=store)

    async def UpdateMemoryStore(
        self, request: pb.UpdateMemoryStoreRequest, context: Context
    ) -> pb.UpdateMemoryStoreResponse:
        """Changes a store; omitted fields keep their values."""
        now = self._clock.now()

        def change(stored: MemoryStore) -> MemoryStore:
            return updated_memory_store(stored, request, now)

        call = once(pb.UpdateMemoryStoreResponse, "memory_store")
        store = await self._stores.revise(
            current_call().workspace_id, request.memory_store_id, change, call
        )
        if is_new(call, context):
            _log.info("memory_store_updated", memory_store_id=store.id)
        return pb.UpdateMemoryStoreResponse(memory_store=store)

    async def ListMemoryStores(
        self, request: pb.ListMemoryStoresRequest, _context: object
    ) -> pb.ListMemoryStoresResponse:
        """Lists stores, newest first."""
        workspace_id = current_call().workspace_id
        created_from = created_to = None
        if request.HasField("created_at_gte"):
            created_from = bound(request.created_at_gte, "created_at[gte]", lower=True)
        if request.HasField("created_at_lte"):
            created_to = bound(request.created_at_lte, "created_at[lte]", lower=False)
        filters = (request.include_archived, created_from, created_to)
        binding = CursorBinding(("memory_stores", workspace_id, *map(str, filters)))
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        listing = Listing(limit + 1, after, request.include_archived, created_from, created_to)
        stores, last = cut(await self._stores.page(workspace_id, listing), limit)
        answer = pb.ListMemoryStoresResponse(data=stores)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def DeleteMemoryStore(
        self, request: pb.DeleteMemoryStoreRequest, context: Context
    ) -> pb.DeleteMemoryStoreResponse:
        """Deletes a store with all that is in it, archived or not."""
        call = once(pb.DeleteMemoryStoreResponse, "id")
        await self._stores.delete(current_call().workspace_id, request.memory_store_id, call)
        if is_new(call, context):
            _log.info("memory_store_deleted", memory_store_id=request.memory_store_id)
        return pb.DeleteMemoryStoreResponse(id=request.memory_store_id)

    async def ArchiveMemoryStore(
        self, request: pb.ArchiveMemoryStoreRequest, context: Context
    ) -> pb.ArchiveMemoryStoreResponse:
        """Archives a store for good."""
        now = self._clock.now()

        def change(stored: MemoryStore) -> MemoryStore:
            return archived_memory_store(stored, now)

        call = once(pb.ArchiveMemoryStoreResponse, "memory_store")
        store = await self._stores.revise(
            current_call().workspace_id, request.memory_store_id, change, call
        )
        if is_new(call, context):
            _log.info("memory_store_archived", memory_store_id=store.id)
        return pb.ArchiveMemoryStoreResponse(memory_store=store)
