"""Calls of MCP tools between hands and vault proxy: was it sent on, or was it not?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chassis.errors import DroverError, Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.vault.v1.credential_proxy_service_pb2 import (
    CallRequest,
    CallResponse,
    ListToolsRequest,
    ListToolsResponse,
)
from drover.vault.v1.credential_proxy_service_pb2_grpc import (
    CredentialProxyServiceServicer,
    add_CredentialProxyServiceServicer_to_server,
)
from services.hands.clients import mcp as client_module
from services.hands.clients.mcp import McpClient
from services.hands.domain.remote import CONNECTION_FAILED, OUTCOME_UNKNOWN, McpCall
from tests.doubles.standing import PromptExit

TOKEN, GRANT = Secret("token"), Secret("grant")
CALL = McpCall("files", "find", '{"a":1}', spills=True)


class Proxy(CredentialProxyServiceServicer):
    """Fails as it is told to, once it has been called."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.called = asyncio.Event()
        self.hangs = False
        self.requests: list[CallRequest] = []

    async def Call(self, request: CallRequest, _context: Any) -> CallResponse:
        self.requests.append(request)
        self.called.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return CallResponse(is_error=False)

    async def ListTools(self, request: ListToolsRequest, _context: Any) -> ListToolsResponse:
        answer = ListToolsResponse()
        answer.tools.add(name=f"{request.mcp_server_name}_tool")
        return answer


class World:
    def __init__(self, proxy: Proxy, server: GrpcServer, client: McpClient) -> None:
        self.proxy, self.server, self.client = proxy, server, client

    async def refused(self) -> DroverError:
        with pytest.raises(DroverError) as refused:
            await self.client.call(GRANT, "sevt_1", CALL)
        return refused.value


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with PromptExit() as stack:
        proxy = Proxy()
        server = GrpcServer("127.0.0.1:0", TOKEN, reflection=False)
        server.add(add_CredentialProxyServiceServicer_to_server, proxy)
        await server.start()
        stack.push_async_callback(server.stop, 0)
        channel = await stack.enter_async_context(open_channel(server.address, TOKEN))
        yield World(proxy, server, McpClient(channel))


async def test_a_call_carries_all_that_it_needs(world: World) -> None:
    answer = await world.client.call(GRANT, "sevt_1", CALL)
    assert not answer.is_error
    [request] = world.proxy.requests
    assert (request.grant, request.call_id) == ("grant", "sevt_1")
    assert (request.mcp_server_name, request.tool, request.input) == ("files", "find", '{"a":1}')
    [tool] = await world.client.list_tools(GRANT, "files")
    assert tool.name == "files_tool"


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.NOT_FOUND, Reason.INVALID_ARGUMENT])
async def test_what_the_proxy_says_of_a_call_that_it_did_not_send_stands(
    world: World, reason: Reason
) -> None:
    world.proxy.failure = DroverError(reason, "not sent")
    error = await world.refused()
    assert (error.reason, error.metadata.get("error_code")) == (reason, None)
    world.proxy.failure = DroverError(reason, "not reached", error_code=CONNECTION_FAILED)
    assert (await world.refused()).metadata["error_code"] == CONNECTION_FAILED


@pytest.mark.parametrize(
    "failure",
    [DroverError(Reason.CONFLICT, "broke", error_code=OUTCOME_UNKNOWN), RuntimeError("a mistake")],
)
async def test_what_the_proxy_does_not_know_itself_is_unknown(
    world: World, failure: Exception
) -> None:
    world.proxy.failure = failure
    assert (await world.refused()).metadata["error_code"] == OUTCOME_UNKNOWN


async def test_a_proxy_that_stops_in_a_call_leaves_its_outcome_unknown(world: World) -> None:
    world.proxy.hangs = True
    asked = asyncio.create_task(world.refused())
    await world.proxy.called.wait()
    await world.server.stop(0)
    assert (await asked).metadata["error_code"] == OUTCOME_UNKNOWN
    assert len(world.proxy.requests) == 1


async def test_a_call_past_its_time_is_of_unknown_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CALL_SECONDS", 0.2)
    world.proxy.hangs = True
    error = await world.refused()
    assert error.reason is Reason.DEADLINE_EXCEEDED
    assert error.metadata["error_code"] == OUTCOME_UNKNOWN


async def test_without_a_proxy_nothing_is_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_READY_SECONDS", 0.2)
    await world.server.stop(0)
    error = await world.refused()
    assert error.reason is Reason.UNAVAILABLE
    assert "error_code" not in error.metadata
    assert world.proxy.requests == []
