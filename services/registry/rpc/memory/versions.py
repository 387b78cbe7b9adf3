"""MemoryVersionService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import bound
from chassis.context import current_call
from drover.memory.v1 import memory_version_service_pb2 as pb
from drover.memory.v1.memory_pb2 import MEMORY_VIEW_BASIC, MEMORY_VIEW_FULL
from drover.memory.v1.memory_version_service_pb2_grpc import MemoryVersionServiceServicer
from services.registry.domain.memory.memory import origin, shows_content
from services.registry.domain.memory.ports import VersionListing
from services.registry.rpc.memory.pages import page_limit
from services.registry.rpc.once import is_new, once

if TYPE_CHECKING:
    from chassis.clock import Clock
    from services.registry.domain.memory.ports import MemoryVersions
    from services.registry.rpc.once import Context

_log = structlog.get_logger("registry.memory_versions")


class MemoryVersionRpc(MemoryVersionServiceServicer):
    """Serves the history of memories, within the calling workspace."""

    def __init__(self, versions: MemoryVersions, clock: Clock) -> None:
        self._versions = versions
        self._clock = clock

    async def GetMemoryVersion(
        self, request: pb.GetMemoryVersionRequest, _context: object
    ) -> pb.GetMemoryVersionResponse:
        """Reads a version."""
        version = await self._versions.get(
            current_call().workspace_id, request.memory_store_id, request.memory_version_id
        )
        if not shows_content(request.view, MEMORY_VIEW_FULL):
            version.ClearField("content")
        return pb.GetMemoryVersionResponse(memory_version=version)

    async def ListMemoryVersions(
        self, request: pb.ListMemoryVersionsRequest, _context: object
    ) -> pb.ListMemoryVersionsResponse:
        """Lists versions, newest first."""
        workspace_id, store_id = current_call().workspace_id, request.memory_store_id
        binding = CursorBinding(("memory_versions", workspace_id, store_id, _filters(request)))
        with_content = shows_content(request.view, MEMORY_VIEW_BASIC)
        asked = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        limit = page_limit(asked, with_content=with_content)
        before = binding.read(request.page).order if request.HasField("page") else None
        listing = _listing(request, limit + 1, before, with_content=with_content)
        if request.HasField("service_account_id"):
            # There are none here: but a store that is not there is told all the same.
            listing = VersionListing(limit=0)
        found, last = cut(await self._versions.page(workspace_id, store_id, listing), limit)
        answer = pb.ListMemoryVersionsResponse(data=[version for version, _ in found])
        if last is not None:
            answer.next_page = binding.write(Position(last[1]))
        return answer

    async def RedactMemoryVersion(
        self, request: pb.RedactMemoryVersionRequest, context: Context
    ) -> pb.RedactMemoryVersionResponse:
        """Removes a version's content and path for good."""
        call = once(pb.RedactMemoryVersionResponse, "memory_version")
        version = await self._versions.redact(
            current_call().workspace_id,
            request.memory_store_id,
            request.memory_version_id,
            origin(request, self._clock.now()),
            call,
        )
        if is_new(call, context):
            _log.info("memory_version_redacted", memory_version_id=version.id)
        return pb.RedactMemoryVersionResponse(memory_version=version)


def _listing(
    request: pb.ListMemoryVersionsRequest, limit: int, before: int | None, *, with_content: bool
) -> VersionListing:
    created_from = created_to = None
    if request.HasField("created_at_gte"):
        created_from = bound(request.created_at_gte, "created_at[gte]", lower=True)
    if request.HasField("created_at_lte"):
        created_to = bound(request.created_at_lte, "created_at[lte]", lower=False)
    return VersionListing(
        limit=limit,
        memory_id=request.memory_id if request.HasField("memory_id") else None,
        session_id=request.session_id if request.HasField("session_id") else None,
        api_key_id=request.api_key_id if request.HasField("api_key_id") else None,
        operation=request.operation or None,
        created_from=created_from,
        created_to=created_to,
        before=before,
        with_content=with_content,
    )


def _filters(request: pb.ListMemoryVersionsRequest) -> str:
    """Everything but which part is asked for, and how much of it: what a cursor belongs to."""
    filters = pb.ListMemoryVersionsRequest()
    filters.CopyFrom(request)
    for field in ("limit", "page", "view"):
        filters.ClearField(field)
    return filters.SerializeToString(deterministic=True).hex()
