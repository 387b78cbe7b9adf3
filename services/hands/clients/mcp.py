"""MCP servers through the vault proxy. Whether a call was sent on is told apart with care."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc

from chassis.errors import DroverError, Reason
from chassis.grpc.status import DETAILS_KEY, from_rpc_error
from drover.vault.v1.credential_proxy_service_pb2 import CallRequest, ListToolsRequest
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceStub
from services.hands.domain.remote import CALL_SECONDS, LIST_SECONDS, OUTCOME_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc.aio

    from chassis.secret import Secret
    from drover.event.v1.mcp_tool_pb2 import McpTool
    from drover.vault.v1.credential_proxy_service_pb2 import CallResponse
    from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceAsyncStub
    from services.hands.domain.remote import McpCall

_READY_SECONDS: Final = 5.0
"""For how long a connection to the vault proxy may take before a call is sent."""


class McpClient:
    """Lists and calls tools over gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._service: CredentialProxyServiceAsyncStub = CredentialProxyServiceStub(channel)

    async def list_tools(self, grant: Secret, server: str) -> Sequence[McpTool]:
        """What a server offers. Raises `DroverError`."""
        request = ListToolsRequest(grant=grant.open(), mcp_server_name=server)
        try:
            answer = await self._service.ListTools(request, timeout=LIST_SECONDS)
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the vault proxy") from error
        return answer.tools

    async def call(self, grant: Secret, call_id: str, call: McpCall) -> CallResponse:
        """Has a tool called once. Raises `DroverError`.

        With the error code `outcome_unknown` where the call may have been sent on; in all other
        cases nothing of it has run.
        """
        await self._ready()
        request = CallRequest(
            grant=grant.open(),
            mcp_server_name=call.server,
            tool=call.name,
            input=call.text,
            call_id=call_id,
        )
        try:
            return await self._service.Call(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            failure = from_rpc_error(error, "the vault proxy")
            told = _answered(error) and failure.reason is not Reason.INTERNAL
            if told or failure.reason is Reason.UNIMPLEMENTED:
                raise failure from error
            # Nobody has said that it was not sent.
            raise DroverError(
                failure.reason, failure.message, error_code=OUTCOME_UNKNOWN
            ) from error

    async def _ready(self) -> None:
        """Waits for a connection: without one, nothing can be sent. Raises UNAVAILABLE."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise DroverError(
                Reason.UNAVAILABLE, "the vault proxy is not available", retry_after=1.0
            ) from error


def _answered(error: grpc.RpcError) -> bool:
    """Whether the vault proxy itself has said what went wrong."""
    trailers: Any = error.trailing_metadata() or ()
    return DETAILS_KEY in dict(trailers)
