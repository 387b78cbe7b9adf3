"""EnvironmentService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import micros
from chassis.context import current_call
from drover.environment.v1 import environment_service_pb2 as pb
from drover.environment.v1.environment_service_pb2_grpc import EnvironmentServiceServicer
from services.registry.domain.environment import new_environment, updated_environment
from services.registry.domain.ports import Listing
from services.registry.rpc.once import is_new, once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.environment.v1.environment_pb2 import Environment
    from services.registry.domain.ports import EnvironmentStore
    from services.registry.rpc.once import Context

_log = structlog.get_logger("registry.environments")


class EnvironmentRpc(EnvironmentServiceServicer):
    """Serves environments out of a store, within the calling workspace."""

    def __init__(
        self,
        store: EnvironmentStore,
        clock: Clock,
        ids: IdSource,
        ceilings: Mapping[str, float],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._ceilings = ceilings

    async def CreateEnvironment(
        self, request: pb.CreateEnvironmentRequest, context: Context
    ) -> pb.CreateEnvironmentResponse:
        """Creates an environment."""
        environment = new_environment(request, self._ids("env"), self._clock.now(), self._ceilings)
        call = once(pb.CreateEnvironmentResponse, "environment")
        environment = await self._store.add(current_call().workspace_id, environment, call)
        if is_new(call, context):
            _log.info("environment_created", environment_id=environment.id)
        return pb.CreateEnvironmentResponse(environment=environment)

    async def GetEnvironment(
        self, request: pb.GetEnvironmentRequest, _context: object
    ) -> pb.GetEnvironmentResponse:
        """Reads an environment."""
        environment = await self._store.get(current_call().workspace_id, request.environment_id)
        return pb.GetEnvironmentResponse(environment=environment)

    async def UpdateEnvironment(
        self, request: pb.UpdateEnvironmentRequest, context: Context
    ) -> pb.UpdateEnvironmentResponse:
        """Changes an environment; omitted fields keep their values."""
        now = self._clock.now()

        def change(stored: Environment) -> Environment:
            return updated_environment(stored, request, now, self._ceilings)

        call = once(pb.UpdateEnvironmentResponse, "environment")
        environment = await self._store.revise(
            current_call().workspace_id, request.environment_id, change, call
        )
        if is_new(call, context):
            _log.info("environment_updated", environment_id=environment.id)
        return pb.UpdateEnvironmentResponse(environment=environment)

    async def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, _context: object
    ) -> pb.ListEnvironmentsResponse:
        """Lists environments, newest first."""
        workspace_id = current_call().workspace_id
        binding = CursorBinding(("environments", workspace_id, str(request.include_archived)))
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        listing = Listing(limit + 1, after, request.include_archived)
        environments, last = cut(await self._store.page(workspace_id, listing), limit)
        answer = pb.ListEnvironmentsResponse(data=environments)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def DeleteEnvironment(
        self, request: pb.DeleteEnvironmentRequest, context: Context
    ) -> pb.DeleteEnvironmentResponse:
        """Deletes an environment, archived or not."""
        call = once(pb.DeleteEnvironmentResponse, "id")
        await self._store.delete(current_call().workspace_id, request.environment_id, call)
        if is_new(call, context):
            _log.info("environment_deleted", environment_id=request.environment_id)
        return pb.DeleteEnvironmentResponse(id=request.environment_id)

    async def ArchiveEnvironment(
        self, request: pb.ArchiveEnvironmentRequest, context: Context
    ) -> pb.ArchiveEnvironmentResponse:
        """Archives an environment: running sessions go on, new ones are refused."""
        call = once(pb.ArchiveEnvironmentResponse, "environment")
        environment = await self._store.archive(
            current_call().workspace_id, request.environment_id, self._clock.now(), call
        )
        if is_new(call, context):
            _log.info("environment_archived", environment_id=environment.id)
        return pb.ArchiveEnvironmentResponse(environment=environment)
