"""SkillVersionService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import micros
from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.skill.v1 import skill_version_service_pb2 as pb
from drover.skill.v1.skill_version_service_pb2_grpc import SkillVersionServiceServicer
from services.registry.domain.ports import Listing
from services.registry.domain.skills.skill import new_version
from services.registry.rpc.once import is_new, once
from services.registry.rpc.sending import messages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.skill.v1.skill_service_pb2 import SkillPart
    from services.registry.domain.skills.ports import SkillStore
    from services.registry.rpc.once import Context
    from services.registry.rpc.skills.receiving import Receiver
    from services.registry.store.objects.kept import KeptObjects

_log = structlog.get_logger("registry.skills")


class SkillVersionRpc(SkillVersionServiceServicer):
    """Serves versions of skills out of a store, within the calling workspace."""

    def __init__(
        self,
        store: SkillStore,
        receiver: Receiver,
        objects: KeptObjects,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._store = store
        self._receiver = receiver
        self._objects = objects
        self._clock = clock
        self._ids = ids

    async def CreateSkillVersion(
        self, requests: AsyncIterator[pb.CreateSkillVersionRequest], context: Context
    ) -> pb.CreateSkillVersionResponse:
        """Stores another version of a skill."""
        workspace_id = current_call().workspace_id
        first = await anext(requests, None)
        if first is None or first.WhichOneof("part") != "header":
            raise DroverError(Reason.INVALID_ARGUMENT, "an upload begins with its header")
        skill_id = first.header.skill_id
        await self._store.get(workspace_id, skill_id)  # before all of its files have come
        async with self._receiver.stored(_parts(requests)) as stored:
            made = new_version(self._ids("skver"), skill_id, stored.packed, self._clock.now())
            call = once(pb.CreateSkillVersionResponse, "version")
            version = await self._store.add_version(workspace_id, made, stored.archive, call)
            if is_new(call, context):
                _log.info("skill_version_created", skill_id=skill_id, version=version.id)
            else:
                stored.abandon()
        return pb.CreateSkillVersionResponse(version=version)

    async def GetSkillVersion(
        self, request: pb.GetSkillVersionRequest, _context: object
    ) -> pb.GetSkillVersionResponse:
        """Reads a version."""
        version, _ = await self._store.version(
            current_call().workspace_id, request.skill_id, request.version
        )
        return pb.GetSkillVersionResponse(version=version)

    async def ListSkillVersions(
        self, request: pb.ListSkillVersionsRequest, _context: object
    ) -> pb.ListSkillVersionsResponse:
        """Lists a skill's versions, newest first."""
        workspace_id = current_call().workspace_id
        binding = CursorBinding(("skill_versions", workspace_id, request.skill_id))
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        rows = await self._store.versions(workspace_id, request.skill_id, Listing(limit + 1, after))
        versions, last = cut(rows, limit)
        answer = pb.ListSkillVersionsResponse(data=versions)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def DeleteSkillVersion(
        self, request: pb.DeleteSkillVersionRequest, context: Context
    ) -> pb.DeleteSkillVersionResponse:
        """Deletes a version."""
        call = once(pb.DeleteSkillVersionResponse, "id")
        deleted = await self._store.delete_version(
            current_call().workspace_id,
            request.skill_id,
            request.version,
            self._clock.now(),
            call,
        )
        if is_new(call, context):
            _log.info("skill_version_deleted", skill_id=request.skill_id, version=deleted)
        return pb.DeleteSkillVersionResponse(id=deleted)

    async def DownloadSkillVersion(
        self, request: pb.DownloadSkillVersionRequest, _context: object
    ) -> AsyncGenerator[pb.DownloadSkillVersionResponse, None]:
        """The archive of a version."""
        workspace_id, skill_id = current_call().workspace_id, request.skill_id
        version, archive = await self._store.version(workspace_id, skill_id, request.version)
        reading = self._objects.read(archive.name, archive.size, version.sha256)
        first = pb.DownloadSkillVersionResponse(version=version)
        try:
            async with aclosing(messages(first, reading)) as sending:
                async for message in sending:
                    yield message
        except DroverError as error:
            if error.reason is Reason.INTERNAL:  # it may have been deleted meanwhile
                await self._store.version(workspace_id, skill_id, version.id)
            raise


async def _parts(
    requests: AsyncIterator[pb.CreateSkillVersionRequest],
) -> AsyncIterator[SkillPart]:
    async for request in requests:
        kind = request.WhichOneof("part")
        if kind == "file":
            yield request.file
        elif kind == "complete" and request.complete:
            return
        elif kind == "header":
            raise DroverError(Reason.INVALID_ARGUMENT, "an upload has one header")
    raise DroverError(Reason.CANCELLED, "the upload broke off")
