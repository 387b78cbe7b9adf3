"""Credentials tried against real servers and token endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from drover.vault.v1 import credential_pb2 as pb
from services.vault_proxy.domain.server_credential import OauthCredential
from tests.doubles.mcp_server import Granted, McpServer, running_mcp_server
from tests.doubles.mcp_world import World, mcp_world
from tests.doubles.ports import free_port

PATH = "/private/mcp"


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with running_mcp_server() as running:
        yield running


@pytest.fixture
async def world(server: McpServer) -> AsyncIterator[World]:
    server.forget()
    server.token_fault(None)
    async with mcp_world(server.port, server.faults_port) as made:
        yield made


def _saved(
    world: World, server: McpServer, url: str = "", *, refresh: bool = True
) -> tuple[Granted, OauthCredential]:
    granted = server.grant()
    saved = world.oauth(
        url or server.url(PATH),
        granted.access_token,
        granted.refresh_token if refresh else None,
        server.token_endpoint,
    )
    return granted, saved


async def _tried(world: World, credential: OauthCredential) -> pb.CredentialValidation:
    return await world.probe.validate("wrkspc_1", credential)


@pytest.mark.parametrize("path", [PATH, "/private/old", "/private/sse"])
async def test_a_good_token_is_valid(world: World, server: McpServer, path: str) -> None:
    _, saved = _saved(world, server, server.url(path))
    found = await _tried(world, saved)
    assert found.status == pb.CREDENTIAL_VALIDATION_STATUS_VALID
    assert found.has_refresh_token
    assert not found.HasField("mcp_probe")
    assert not found.HasField("refresh")
    assert [entry.method for entry in world.trail.entries] == ["mcp_oauth_validate"]


async def test_a_refused_token_is_refreshed_and_tried_again(
    world: World, server: McpServer
) -> None:
    granted, saved = _saved(world, server)
    server.revoke(granted.access_token)
    found = await _tried(world, saved)
    assert found.status == pb.CREDENTIAL_VALIDATION_STATUS_VALID
    assert found.refresh.status == pb.REFRESH_STATUS_SUCCEEDED
    assert not found.refresh.HasField("http_response")
    assert not found.HasField("mcp_probe")
    assert not world.stored().access_token.matches(granted.access_token)


async def test_a_refused_token_without_a_refresh_token_is_invalid(
    world: World, server: McpServer
) -> None:
    granted, saved = _saved(world, server, refresh=False)
    server.revoke(granted.access_token)
    found = await _tried(world, saved)
    assert found.status == pb.CREDENTIAL_VALIDATION_STATUS_INVALID
    assert not found.has_refresh_token
    assert found.refresh.status == pb.REFRESH_STATUS_NO_REFRESH_TOKEN
    assert found.mcp_probe.http_response.status_code == 401
    assert found.mcp_probe.http_response.content_type == "application/json"
    assert "invalid_token" in found.mcp_probe.http_response.body


async def test_what_a_server_says_is_shown_without_the_token(
    world: World, server: McpServer
) -> None:
    granted, saved = _saved(world, server, refresh=False)
    server.revoke(granted.access_token)
    shown = str(await _tried(world, saved))
    assert '\\"seen\\":' in shown
    assert granted.access_token not in shown


async def test_a_refused_refresh_token_is_invalid_and_what_was_said_is_shown(
    world: World, server: McpServer
) -> None:
    granted, saved = _saved(world, server)
    server.revoke(granted.access_token)
    server.token_fault(
        {
            "status": 400,
            "body": '{"error": "invalid_grant", "you_sent": "' + granted.refresh_token + '"}',
        }
    )
    for _ in range(2):  # whoever validates wants to know it as it is now
        found = await _tried(world, saved)
        assert found.status == pb.CREDENTIAL_VALIDATION_STATUS_INVALID
        assert found.refresh.status == pb.REFRESH_STATUS_FAILED
        assert found.refresh.http_response.status_code == 400
        assert "invalid_grant" in found.refresh.http_response.body
        assert granted.refresh_token not in str(found)
    assert server.refreshes() == 2


async def test_a_long_answer_is_cut_and_said_so(world: World, server: McpServer) -> None:
    granted, saved = _saved(world, server)
    server.revoke(granted.access_token)
    server.token_fault({"status": 400, "body": "x" * 50_000, "content_type": "text/plain"})
    shown = (await _tried(world, saved)).refresh.http_response
    assert (len(shown.body), shown.body_truncated) == (2_000, True)
    assert shown.content_type.startswith("text/plain")


async def test_a_token_endpoint_in_trouble_leaves_it_unknown(
    world: World, server: McpServer
) -> None:
    granted, saved = _saved(world, server)
    server.revoke(granted.access_token)
    server.token_fault({"status": 502, "body": "<h1>bad gateway</h1>"})
    found = await _tried(world, saved)
    assert found.status == pb.CREDENTIAL_VALIDATION_STATUS_UNKNOWN
    assert found.refresh.status == pb.REFRESH_STATUS_FAILED
    assert found.refresh.http_response.status_code == 502


async def test_a_token_endpoint_that_nobody_reaches_is_a_connect_error(
    world: World, server: McpServer
) -> None:
    granted = server.grant()
    saved = world.oauth(
        server.url(PATH), "at-unknown", granted.refresh_token, "http://10.0.0.1/token"
    )
    found = await _tried(world, saved)
    assert found.status == pb.CREDENTIAL_VALIDATION_STATUS_UNKNOWN
    assert found.refresh.status == pb.REFRESH_STATUS_CONNECT_ERROR
    assert not found.refresh.HasField("http_response")


async def test_a_server_that_nobody_reaches_leaves_it_unknown(
    world: World, server: McpServer
) -> None:
    _, saved = _saved(world, server, "http://10.0.0.1/mcp")
    found = await _tried(world, saved)
    assert found.status == pb.CREDENTIAL_VALIDATION_STATUS_UNKNOWN
    assert found.mcp_probe.method == "server/discover"
    assert not found.mcp_probe.HasField("http_response")
    assert not found.HasField("refresh")


async def test_what_came_of_it_is_in_the_audit_trail(server: McpServer) -> None:
    nobody = free_port()
    async with mcp_world(server.port, server.faults_port, nobody) as world:
        await _tried(world, _saved(world, server, f"http://127.0.0.1:{nobody}/mcp")[1])
        assert _recorded(world) == ("failed", "unreachable")
        await _tried(world, _saved(world, server, "http://10.0.0.1/mcp")[1])
        assert _recorded(world) == ("denied", "address_not_allowed")
        await _tried(world, _saved(world, server, server.fault("/version"))[1])
        assert _recorded(world) == ("failed", "refused")
        granted, saved = _saved(world, server)
        server.revoke(granted.access_token)
        server.token_fault({"status": 502, "body": ""})
        await _tried(world, saved)
        assert _recorded(world) == ("failed", "token_endpoint_failed")
        granted, saved = _saved(world, server, refresh=False)
        await _tried(world, saved)
        assert _recorded(world) == ("allowed", "")
        server.revoke(granted.access_token)
        await _tried(world, saved)
        assert _recorded(world) == ("denied", "authentication_failed")


def _recorded(world: World) -> tuple[str, str]:
    entry = world.trail.entries[-1]
    assert entry.method == "mcp_oauth_validate"
    return entry.verdict, entry.reason


async def test_a_forbidden_token_is_invalid_and_not_refreshed(
    world: World, server: McpServer
) -> None:
    granted, saved = _saved(world, server)
    server.ban(granted.access_token)
    found = await _tried(world, saved)
    assert found.status == pb.CREDENTIAL_VALIDATION_STATUS_INVALID
    assert found.mcp_probe.http_response.status_code == 403
    assert server.refreshes() == 0


@pytest.mark.parametrize("path", ["/version", "/away"])
async def test_a_server_that_is_none_leaves_it_unknown(
    world: World, server: McpServer, path: str
) -> None:
    _, saved = _saved(world, server, server.fault(path))
    found = await _tried(world, saved)
    assert found.status == pb.CREDENTIAL_VALIDATION_STATUS_UNKNOWN
    assert found.HasField("mcp_probe")
