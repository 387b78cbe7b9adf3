"""HandsService on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import (
    CancelRequest,
    CancelResponse,
    ExecuteRequest,
    ExecuteResponse,
    ProvisionRequest,
    ProvisionResponse,
    ReleaseRequest,
    ReleaseResponse,
)
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceServicer
from services.hands.backends.port import BackendUnavailable
from services.hands.domain import recipe

if TYPE_CHECKING:
    import grpc.aio

    from services.hands.executor import Executor
    from services.hands.workspace import Workspaces

    Context = grpc.aio.ServicerContext[Any, Any]


class HandsRpc(HandsServiceServicer):
    """Turns requests into calls of the executor. Errors are `DroverError`s."""

    def __init__(self, executor: Executor, workspaces: Workspaces) -> None:
        self._executor = executor
        self._workspaces = workspaces

    async def Provision(  # noqa: N802  # named by the contract
        self, request: ProvisionRequest, _context: Context
    ) -> ProvisionResponse:
        """Makes a session's hand, or answers the one it has."""
        wanted = recipe.check(request.environment)
        try:
            hand, existing = await self._executor.provision(
                request.session_id, request.generation, wanted
            )
        except BackendUnavailable as error:
            raise DroverError(Reason.UNAVAILABLE, str(error)) from error
        return ProvisionResponse(hand_id=hand.id, backend=hand.backend, existing=existing)

    async def Execute(  # noqa: N802  # named by the contract
        self, request: ExecuteRequest, _context: Context
    ) -> ExecuteResponse:
        """Runs one tool call, at most once."""
        wanted = recipe.check(request.environment)
        return await self._executor.execute(
            request.session_id,
            request.call_id,
            request.generation,
            request.name,
            request.input,
            recipe=wanted,
        )

    async def Cancel(  # noqa: N802  # named by the contract
        self, request: CancelRequest, _context: Context
    ) -> CancelResponse:
        """Stops calls."""
        await self._executor.cancel(request.session_id, request.generation, request.call_ids)
        return CancelResponse()

    async def Release(  # noqa: N802  # named by the contract
        self, request: ReleaseRequest, _context: Context
    ) -> ReleaseResponse:
        """Ends a session's hand."""
        session_id, generation = request.session_id, request.generation
        try:
            if generation:
                await self._executor.end(session_id, generation)
        except DroverError as error:
            if error.reason is not Reason.LEASE_LOST:
                raise
            return ReleaseResponse()
        await self._executor.release(session_id)
        if request.purge:
            await self._workspaces.purge(session_id)
            await self._executor.purge(session_id, generation)
        return ReleaseResponse()
