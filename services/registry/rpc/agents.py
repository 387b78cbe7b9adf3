"""AgentService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from catalogue.models import load
from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import bound, micros
from chassis.context import current_call
from drover.agent.v1 import agent_service_pb2 as pb
from drover.agent.v1.agent_service_pb2_grpc import AgentServiceServicer
from services.registry.domain.ability import check_ability
from services.registry.domain.agent import new_agent, updated_agent
from services.registry.domain.ports import Listing
from services.registry.domain.selection import revised_session_agent, session_agent
from services.registry.domain.skills.pinning import check_skills
from services.registry.rpc.once import is_new, once

if TYPE_CHECKING:
    from catalogue.models import Catalogue
    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.agent.v1.agent_pb2 import Agent
    from services.registry.domain.ports import AgentStore
    from services.registry.domain.skills.pinning import Pinning
    from services.registry.rpc.once import Context

_log = structlog.get_logger("registry.agents")


class AgentRpc(AgentServiceServicer):
    """Serves agents out of a store, within the calling workspace.

    `searchable` says whether the installation has something to search the web with.
    """

    def __init__(
        self,
        store: AgentStore,
        clock: Clock,
        ids: IdSource,
        pinning: Pinning,
        models: Catalogue | None = None,
        *,
        searchable: bool = False,
    ) -> None:
        self._store = store
        self._pinning = pinning
        self._searchable = searchable
        self._models = load(None) if models is None else models
        self._clock = clock
        self._ids = ids

    async def CreateAgent(
        self, request: pb.CreateAgentRequest, context: Context
    ) -> pb.CreateAgentResponse:
        """Creates an agent at version 1."""
        check_ability(request.model, self._models.of(request.model.id))
        agent = new_agent(request, self._ids("agent"), self._clock.now())
        await self._pinning.settle(current_call().workspace_id, agent.skills, "skills")
        call = once(pb.CreateAgentResponse, "agent")
        agent = await self._store.add(current_call().workspace_id, agent, call)
        if is_new(call, context):
            _log.info("agent_created", agent_id=agent.id)
        return pb.CreateAgentResponse(agent=agent)

    async def GetAgent(self, request: pb.GetAgentRequest, _context: object) -> pb.GetAgentResponse:
        """Reads an agent, at its latest version or a given one."""
        version = request.version if request.HasField("version") else None
        agent = await self._store.get(current_call().workspace_id, request.agent_id, version)
        return pb.GetAgentResponse(agent=agent)

    async def UpdateAgent(
        self, request: pb.UpdateAgentRequest, context: Context
    ) -> pb.UpdateAgentResponse:
        """Changes an agent: a new version where something differs."""
        now = self._clock.now()
        check_skills(request.skills, "skills")
        await self._pinning.settle(current_call().workspace_id, request.skills, "skills")
        if request.HasField("model"):
            check_ability(request.model, self._models.of(request.model.id))

        def change(stored: Agent) -> Agent:
            return updated_agent(stored, request, now)

        call = once(pb.UpdateAgentResponse, "agent")
        agent = await self._store.revise(
            current_call().workspace_id, request.agent_id, change, call
        )
        if is_new(call, context):
            _log.info("agent_updated", agent_id=agent.id, version=agent.version)
        return pb.UpdateAgentResponse(agent=agent)

    async def ListAgents(
        self, request: pb.ListAgentsRequest, _context: object
    ) -> pb.ListAgentsResponse:
        """Lists agents at their latest versions, newest first."""
        workspace_id = current_call().workspace_id
        created_from = created_to = None
        if request.HasField("created_at_gte"):
            created_from = bound(request.created_at_gte, "created_at[gte]", lower=True)
        if request.HasField("created_at_lte"):
            created_to = bound(request.created_at_lte, "created_at[lte]", lower=False)
        filters = (request.include_archived, created_from, created_to)
        binding = CursorBinding(("agents", workspace_id, *map(str, filters)))
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        listing = Listing(limit + 1, after, request.include_archived, created_from, created_to)
        agents, last = cut(await self._store.page(workspace_id, listing), limit)
        answer = pb.ListAgentsResponse(data=agents)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def ArchiveAgent(
        self, request: pb.ArchiveAgentRequest, context: Context
    ) -> pb.ArchiveAgentResponse:
        """Archives an agent for good."""
        call = once(pb.ArchiveAgentResponse, "agent")
        agent = await self._store.archive(
            current_call().workspace_id, request.agent_id, self._clock.now(), call
        )
        if is_new(call, context):
            _log.info("agent_archived", agent_id=agent.id)
        return pb.ArchiveAgentResponse(agent=agent)

    async def ListAgentVersions(
        self, request: pb.ListAgentVersionsRequest, _context: object
    ) -> pb.ListAgentVersionsResponse:
        """Lists an agent's versions, newest first."""
        workspace_id = current_call().workspace_id
        binding = CursorBinding(("agent_versions", workspace_id, request.agent_id))
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        listing = Listing(limit + 1, after)
        versions = await self._store.versions(workspace_id, request.agent_id, listing)
        agents, last = cut(versions, limit)
        answer = pb.ListAgentVersionsResponse(data=agents)
        if last is not None:
            answer.next_page = binding.write(Position(last.version))
        return answer

    async def ResolveAgent(
        self, request: pb.ResolveAgentRequest, _context: object
    ) -> pb.ResolveAgentResponse:
        """Resolves what a session names as its agent to the copy it works with."""
        overrides = None
        if request.selection.HasField("agent_with_overrides"):
            overrides = request.selection.agent_with_overrides
        wanted = request.selection.agent if overrides is None else overrides
        version = wanted.version if wanted.HasField("version") else None
        base = await self._store.get(current_call().workspace_id, wanted.id, version)
        agent = session_agent(base, overrides, searchable=self._searchable)
        # Those of the agent, too: a version may have been deleted since it was saved.
        await self._pinning.settle(current_call().workspace_id, agent.skills, "agent.skills")
        if overrides is not None and overrides.HasField("model"):
            check_ability(agent.model, self._models.of(agent.model.id), "agent.")
        return pb.ResolveAgentResponse(agent=agent)

    async def ReviseSessionAgent(
        self, request: pb.ReviseSessionAgentRequest, _context: object
    ) -> pb.ReviseSessionAgentResponse:
        """Replaces tools or MCP servers of the copy that a session works with."""
        agent = revised_session_agent(request, searchable=self._searchable)
        return pb.ReviseSessionAgentResponse(agent=agent)
