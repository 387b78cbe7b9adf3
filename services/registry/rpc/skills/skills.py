"""SkillService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import micros
from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.skill.v1 import skill_service_pb2 as pb
from drover.skill.v1.skill_service_pb2_grpc import SkillServiceServicer
from services.registry.domain.ports import Listing
from services.registry.domain.skills.skill import check_display_name, new_skill, new_version
from services.registry.rpc.once import is_new, once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.registry.domain.skills.ports import SkillStore
    from services.registry.rpc.once import Context
    from services.registry.rpc.skills.receiving import Receiver

_log = structlog.get_logger("registry.skills")


class SkillRpc(SkillServiceServicer):
    """Serves skills out of a store, within the calling workspace."""

    def __init__(self, store: SkillStore, receiver: Receiver, clock: Clock, ids: IdSource) -> None:
        self._store = store
        self._receiver = receiver
        self._clock = clock
        self._ids = ids

    async def CreateSkill(
        self, requests: AsyncIterator[pb.CreateSkillRequest], context: Context
    ) -> pb.CreateSkillResponse:
        """Stores a skill with its first version."""
        said = _Said()
        async with self._receiver.stored(said.parts(requests)) as stored:
            skill_id, now = self._ids("skill"), self._clock.now()
            version = new_version(self._ids("skver"), skill_id, stored.packed, now)
            skill = new_skill(version, said.display_name)
            call = once(pb.CreateSkillResponse, "skill")
            skill = await self._store.add(
                current_call().workspace_id, skill, version, stored.archive, call
            )
            if is_new(call, context):
                _log.info("skill_created", skill_id=skill.id, name=version.name)
            else:
                stored.abandon()
        return pb.CreateSkillResponse(skill=skill)

    async def GetSkill(self, request: pb.GetSkillRequest, _context: object) -> pb.GetSkillResponse:
        """Reads a skill."""
        skill = await self._store.get(current_call().workspace_id, request.skill_id)
        return pb.GetSkillResponse(skill=skill)

    async def ListSkills(
        self, request: pb.ListSkillsRequest, _context: object
    ) -> pb.ListSkillsResponse:
        """Lists skills, newest first."""
        workspace_id = current_call().workspace_id
        binding = CursorBinding(("skills", workspace_id, request.source))
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        if request.HasField("source") and request.source != "custom":
            return pb.ListSkillsResponse()  # no other is in any installation
        skills, last = cut(await self._store.page(workspace_id, Listing(limit + 1, after)), limit)
        answer = pb.ListSkillsResponse(data=skills)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def DeleteSkill(
        self, request: pb.DeleteSkillRequest, context: Context
    ) -> pb.DeleteSkillResponse:
        """Deletes a skill with all its versions."""
        call = once(pb.DeleteSkillResponse, "id")
        await self._store.delete(current_call().workspace_id, request.skill_id, call)
        if is_new(call, context):
            _log.info("skill_deleted", skill_id=request.skill_id)
        return pb.DeleteSkillResponse(id=request.skill_id)


class _Said:
    """What an upload says besides its files, known once they have come."""

    def __init__(self) -> None:
        self.display_name: str | None = None

    async def parts(
        self, requests: AsyncIterator[pb.CreateSkillRequest]
    ) -> AsyncIterator[pb.SkillPart]:
        """The pieces of the files. Raises INVALID_ARGUMENT, and CANCELLED for what broke off."""
        begun = False
        async for request in requests:
            kind = request.WhichOneof("part")
            if kind == "header":
                begun = True
                if request.header.HasField("display_name"):
                    check_display_name(request.header.display_name)
                    self.display_name = request.header.display_name
            elif not begun:
                raise DroverError(Reason.INVALID_ARGUMENT, "an upload begins with its header")
            elif kind == "file":
                yield request.file
            elif request.complete:
                return
        raise DroverError(Reason.CANCELLED, "the upload broke off")
