"""MemoryService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from chassis.context import current_call
from drover.memory.v1 import memory_service_pb2 as pb
from drover.memory.v1.memory_pb2 import MEMORY_VIEW_BASIC, MEMORY_VIEW_FULL
from drover.memory.v1.memory_service_pb2_grpc import MemoryServiceServicer
from services.registry.domain.memory.memory import (
    new_memory,
    origin,
    shows_content,
    wanted_change,
    wanted_deletion,
)
from services.registry.domain.memory.paths import refuse_bad_prefix
from services.registry.domain.memory.ports import MemoryListing
from services.registry.rpc.memory.pages import page_limit
from services.registry.rpc.once import is_new, once

if TYPE_CHECKING:
    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.memory.v1.memory_pb2 import Memory, MemoryView
    from services.registry.domain.memory.ports import Memories
    from services.registry.rpc.once import Context

_log = structlog.get_logger("registry.memories")


class MemoryRpc(MemoryServiceServicer):
    """Serves memories, within the calling workspace."""

    def __init__(self, memories: Memories, clock: Clock, ids: IdSource) -> None:
        self._memories = memories
        self._clock = clock
        self._ids = ids

    async def CreateMemory(
        self, request: pb.CreateMemoryRequest, context: Context
    ) -> pb.CreateMemoryResponse:
        """Stores a memory."""
        made = new_memory(request, self._ids("mem"), self._ids("memver"))
        by_now = origin(request, self._clock.now())
        call = once(pb.CreateMemoryResponse, "memory")
        workspace_id = current_call().workspace_id
        memory = await self._memories.add(workspace_id, made, by_now, call)
        if is_new(call, context):
            _log.info("memory_created", memory_store_id=memory.memory_store_id, memory_id=memory.id)
        _show(memory, request.view, MEMORY_VIEW_BASIC)
        return pb.CreateMemoryResponse(memory=memory)

    async def GetMemory(
        self, request: pb.GetMemoryRequest, _context: object
    ) -> pb.GetMemoryResponse:
        """Reads a memory."""
        memory = await self._memories.get(
            current_call().workspace_id, request.memory_store_id, request.memory_id
        )
        _show(memory, request.view, MEMORY_VIEW_FULL)
        return pb.GetMemoryResponse(memory=memory)

    async def UpdateMemory(
        self, request: pb.UpdateMemoryRequest, context: Context
    ) -> pb.UpdateMemoryResponse:
        """Changes a memory's content, its path, or both."""
        call = once(pb.UpdateMemoryResponse, "memory")
        memory = await self._memories.change(
            current_call().workspace_id,
            request.memory_store_id,
            request.memory_id,
            wanted_change(request, self._ids("memver"), self._clock.now()),
            call,
        )
        if is_new(call, context):
            _log.info("memory_updated", memory_store_id=memory.memory_store_id, memory_id=memory.id)
        _show(memory, request.view, MEMORY_VIEW_BASIC)
        return pb.UpdateMemoryResponse(memory=memory)

    async def ListMemories(
        self, request: pb.ListMemoriesRequest, _context: object
    ) -> pb.ListMemoriesResponse:
        """Lists memories by their paths."""
        workspace_id, store_id = current_call().workspace_id, request.memory_store_id
        directory = request.path_prefix if request.HasField("path_prefix") else "/"
        refuse_bad_prefix(directory)
        filters = (store_id, directory, str(request.depth))
        binding = CursorBinding(("memories", workspace_id, *filters))
        with_content = shows_content(request.view, MEMORY_VIEW_BASIC)
        asked = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        limit = page_limit(asked, with_content=with_content)
        after = binding.read(request.page).item_id if request.HasField("page") else None
        listing = MemoryListing(limit + 1, directory, request.depth == 1, after, with_content)
        items, last = cut(await self._memories.page(workspace_id, store_id, listing), limit)
        answer = pb.ListMemoriesResponse(data=items)
        if last is not None:
            shown = last.memory if last.HasField("memory") else last.memory_prefix
            answer.next_page = binding.write(Position(0, shown.path))
        return answer

    async def DeleteMemory(
        self, request: pb.DeleteMemoryRequest, context: Context
    ) -> pb.DeleteMemoryResponse:
        """Deletes a memory. Its versions stay."""
        call = once(pb.DeleteMemoryResponse, "id")
        store_id, memory_id = request.memory_store_id, request.memory_id
        await self._memories.delete(
            current_call().workspace_id,
            store_id,
            memory_id,
            wanted_deletion(request, self._ids("memver"), self._clock.now()),
            call,
        )
        if is_new(call, context):
            _log.info("memory_deleted", memory_store_id=store_id, memory_id=memory_id)
        return pb.DeleteMemoryResponse(id=memory_id)

    async def FollowMemories(
        self, request: pb.FollowMemoriesRequest, _context: object
    ) -> pb.FollowMemoriesResponse:
        """What has changed in stores since the caller looked last."""
        changes = await self._memories.follow(current_call().workspace_id, request.stores)
        return pb.FollowMemoriesResponse(stores=changes)


def _show(memory: Memory, view: MemoryView.ValueType, default: MemoryView.ValueType) -> None:
    if not shows_content(view, default):
        memory.ClearField("content")
