"""HandsService on the wire."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import (
    CancelRequest,
    CancelResponse,
    ExecuteRequest,
    ExecuteResponse,
    FollowRequest,
    FollowResponse,
    HandOverRequest,
    HandOverResponse,
    ListToolsRequest,
    ListToolsResponse,
    ProvisionRequest,
    ProvisionResponse,
    ReleaseRequest,
    ReleaseResponse,
)
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceServicer
from services.hands.backends.port import BackendUnavailable
from services.hands.domain import mounts, recipe, remote
from services.hands.domain.handover import Generations, HandOver
from services.hands.domain.printed import Chunk
from services.hands.domain.remote import McpServer
from services.hands.domain.web import WEB_TOOLS
from services.hands.following import follow

if TYPE_CHECKING:
    import grpc.aio

    from services.hands.domain.mounts import Mounts
    from services.hands.domain.recipe import Recipe
    from services.hands.executor import Executor
    from services.hands.remote.mcp import McpTools
    from services.hands.remote.outside import Destination

    Context = grpc.aio.ServicerContext[Any, Any]


class HandsRpc(HandsServiceServicer):
    """Turns requests into calls of the executor. Errors are `DroverError`s."""

    def __init__(
        self, executor: Executor, mcp: McpTools | None = None, *, has_registry: bool = True
    ) -> None:
        """Without `mcp` no MCP server is reached, without a registry nothing is mounted."""
        self._executor = executor
        self._mcp = mcp
        self._has_registry = has_registry

    async def Provision(  # noqa: N802  # named by the contract
        self, request: ProvisionRequest, _context: Context
    ) -> ProvisionResponse:
        """Makes a session's hand, or answers the one it has."""
        given = self._given(request)
        workspace_id = current_call().workspace_id
        wanted = recipe.check(request.environment, workspace_id, given.writable)
        try:
            hand, existing = await self._executor.provision(
                request.session_id, request.generation, wanted, name=request.hand, given=given
            )
        except BackendUnavailable as error:
            raise DroverError(Reason.UNAVAILABLE, str(error)) from error
        return ProvisionResponse(
            hand_id=hand.id,
            backend=hand.backend,
            existing=existing,
            hand=request.hand,
            errors=hand.problems,
        )

    async def Execute(  # noqa: N802  # named by the contract
        self, request: ExecuteRequest, _context: Context
    ) -> ExecuteResponse:
        """Runs one tool call, at most once."""
        given = self._given(request)
        return await self._executor.execute(
            request.session_id,
            request.call_id,
            request.generation,
            request.name,
            request.input,
            recipe=_recipe(request, given),
            name=request.hand,
            destination=_destination(request),
            given=given,
        )

    async def Follow(  # type: ignore[override]  # noqa: N802  # grpc.aio takes coroutines too
        self, request: FollowRequest, context: Context
    ) -> None:
        """Runs one tool call, at most once, and tells what it prints meanwhile."""
        call = request.call
        given = self._given(call)
        asked = await self._executor.ask(
            call.session_id,
            call.call_id,
            call.generation,
            call.name,
            call.input,
            recipe=_recipe(call, given),
            name=call.hand,
            destination=_destination(call),
            given=given,
        )
        if isinstance(asked, ExecuteResponse):
            await context.write(FollowResponse(result=asked))
            return
        async with aclosing(follow(asked)) as updates:
            async for update in updates:
                answer = FollowResponse()
                if isinstance(update, Chunk):
                    answer.output.text, answer.output.dropped_bytes = update.text, update.dropped
                else:
                    answer.result.CopyFrom(update)
                await context.write(answer)

    async def ListTools(  # noqa: N802  # named by the contract
        self, request: ListToolsRequest, _context: Context
    ) -> ListToolsResponse:
        """Lists the tools of MCP servers."""
        session_id, servers = request.session_id, request.mcp_server_names
        await self._executor.fence(session_id, request.generation)
        if self._mcp is None:
            return ListToolsResponse(servers=[remote.without_proxy(name) for name in servers])
        return ListToolsResponse(servers=await self._mcp.list_tools(session_id, servers))

    async def Cancel(  # noqa: N802  # named by the contract
        self, request: CancelRequest, _context: Context
    ) -> CancelResponse:
        """Stops calls."""
        await self._executor.cancel(request.session_id, request.generation, request.call_ids)
        return CancelResponse()

    async def Release(  # noqa: N802  # named by the contract
        self, request: ReleaseRequest, _context: Context
    ) -> ReleaseResponse:
        """Ends a session's hands, or one of them."""
        session_id, generation = request.session_id, request.generation
        if not await self._executor.serves(session_id):  # of another workspace: not there
            return ReleaseResponse()
        if request.hand:
            return await self._release_one(session_id, generation, request)
        try:
            if generation:
                await self._executor.end(session_id, generation)
        except DroverError as error:
            if error.reason is not Reason.LEASE_LOST:
                raise
            return ReleaseResponse()
        await self._executor.release(session_id, purge=request.purge)
        if request.purge:
            await self._executor.purge(session_id, generation)
        return ReleaseResponse()

    async def _release_one(
        self, session_id: str, generation: int, request: ReleaseRequest
    ) -> ReleaseResponse:
        await self._executor.fence(session_id, generation)
        await self._executor.release(session_id, request.hand, purge=request.purge)
        if request.purge:
            await self._executor.purge_hand(session_id, request.hand)
        return ReleaseResponse()

    async def HandOver(  # noqa: N802  # named by the contract
        self, request: HandOverRequest, _context: Context
    ) -> HandOverResponse:
        """Hands a hand on to another session."""
        wanted = HandOver(request.session_id, request.hand, request.to_session_id, request.to_hand)
        generations = Generations(request.generation, request.to_generation)
        try:
            hand = await self._executor.hand_over(wanted, generations, current_call().workspace_id)
        except OSError as error:
            text = f"the workspace could not be moved yet: {error.strerror or error}"
            raise DroverError(Reason.UNAVAILABLE, text, retry_after=1.0) from error
        return HandOverResponse(hand_id=hand.id if hand is not None else "")

    def _given(self, request: ProvisionRequest | ExecuteRequest) -> Mounts:
        """What is brought into the hand."""
        given = mounts.check(request.mounts, current_call().workspace_id)
        if given and not self._has_registry:
            text = "mounts: nothing can be brought in here: set DROVER_REGISTRY_ADDRESS"
            raise DroverError(Reason.INVALID_ARGUMENT, text)
        return given


def _recipe(call: ExecuteRequest, given: Mounts) -> Recipe:
    """What the call's hand is made by, where it needs one: an operator's workers need none here."""
    if _destination(call) is not None and call.environment.HasField("self_hosted"):
        return recipe.DEFAULT
    return recipe.check(call.environment, current_call().workspace_id, given.writable)


def _destination(call: ExecuteRequest) -> Destination | None:
    """Where a call goes that no sandbox runs."""
    if call.mcp_server_name:
        return McpServer(call.mcp_server_name, spills=not call.environment.HasField("self_hosted"))
    return call.web if call.name in WEB_TOOLS else None
