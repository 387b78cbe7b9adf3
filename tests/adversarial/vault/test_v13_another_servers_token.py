"""V13: a server gets the token that is meant for it, and nobody else's, whatever it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from chassis.errors import DroverError
from services.vault_proxy.mcp.limits import Limits
from tests.doubles.mcp_server import McpServer, running_mcp_server
from tests.doubles.mcp_world import World, mcp_world

TOKEN = "tok-of-the-first-server"  # noqa: S105
OTHER = "tok-of-the-other-server"


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[McpServer, McpServer]]:
    with running_mcp_server() as first, running_mcp_server() as second:
        yield first, second


@pytest.fixture
async def world(servers: tuple[McpServer, McpServer]) -> AsyncIterator[World]:
    first, second = servers
    first.forget()
    second.forget()
    first.allow(TOKEN)
    second.allow(OTHER)
    ports = (first.port, first.faults_port, second.port, second.faults_port)
    async with mcp_world(*ports) as made:
        yield made


async def _called(world: World, url: str, tool: str = "echo", **more: object) -> str:
    facts = world.facts(url, **more)  # type: ignore[arg-type]
    answer = await world.servers.call(facts, "srv", tool, "{}", "c")
    return answer.content[0].text.text if answer.content else ""


async def _failed(world: World, url: str) -> str | None:
    with pytest.raises(DroverError) as refused:
        await _called(world, url)
    return refused.value.error_code


def _sent(server: McpServer) -> set[str]:
    report = server.report()
    told = [one["headers"].get("authorization", "") for one in report["seen"]]
    return {*told, *(one["authorization"] for one in report["faults"])}


async def test_each_server_gets_its_own(world: World, servers: tuple[McpServer, McpServer]) -> None:
    first, second = servers
    world.bearer(first.url("/private/mcp"), TOKEN)
    world.bearer(second.url("/private/mcp"), OTHER, name="vcrd_2")
    await _called(world, first.url("/private/mcp"))
    await _called(world, second.url("/private/mcp"))
    assert _sent(first) == {f"Bearer {TOKEN}"}
    assert _sent(second) == {f"Bearer {OTHER}"}


@pytest.mark.parametrize("path", ["/mcp", "/private/json/mcp", "/private/mcp/", "/private"])
async def test_another_path_of_the_same_host_gets_none(
    world: World, servers: tuple[McpServer, McpServer], path: str
) -> None:
    first, _ = servers
    world.bearer(first.url("/private/other"), TOKEN)
    if path == "/mcp":
        await _called(world, first.url(path))
    else:
        assert await _failed(world, first.url(path)) is not None
    assert _sent(first) == {""}


async def test_the_first_vault_with_a_match_wins(
    world: World, servers: tuple[McpServer, McpServer]
) -> None:
    first, _ = servers
    url = first.url("/private/mcp")
    world.bearer(url, "tok-of-no-use", name="vcrd_a", vault="vlt_a")
    world.bearer(url.replace("http", "HTTP") + "/", TOKEN, name="vcrd_b", vault="vlt_b")
    await _called(world, url, vaults=("vlt_b", "vlt_a"))
    assert _sent(first) == {f"Bearer {TOKEN}"}


async def test_a_vault_that_the_session_does_not_have_is_not_used(
    world: World, servers: tuple[McpServer, McpServer]
) -> None:
    first, _ = servers
    world.bearer(first.url("/private/mcp"), TOKEN, vault="vlt_of_another")
    assert await _failed(world, first.url("/private/mcp")) == "mcp_authentication_failed"
    assert _sent(first) == {""}


async def test_a_server_that_names_another_host_for_messages_gets_no_token_there(
    servers: tuple[McpServer, McpServer],
) -> None:
    first, _ = servers
    first.forget()
    async with mcp_world(first.port, first.faults_port, limits=Limits(greet_seconds=3)) as world:
        world.names["other.example.com"] = "127.0.0.1"
        world.bearer(first.fault("/elsewhere"), TOKEN)
        assert await _failed(world, first.fault("/elsewhere")) == "mcp_connection_failed"
    assert {one["path"] for one in first.report()["faults"]} == {"/elsewhere"}


async def test_a_refusal_that_names_another_authorization_server_is_not_followed(
    world: World, servers: tuple[McpServer, McpServer]
) -> None:
    first, second = servers
    granted = second.grant()
    world.oauth(
        first.url("/private/mcp"), "at-unknown", granted.refresh_token, second.token_endpoint
    )
    first.challenge(
        f'Bearer resource_metadata="{first.fault("/plain")}", '
        f'authorization_uri="{first.token_endpoint}"'
    )
    try:
        assert await _failed(world, first.url("/private/mcp")) == "mcp_authentication_failed"
    finally:
        first.challenge("")
    report = first.report()
    assert (report["token_requests"], report["faults"]) == ([], [])
    assert second.refreshes() == 1
    refreshed = world.stored().refresh
    assert refreshed is not None
    assert refreshed.refresh_token.open() not in json.dumps(report)


async def test_a_forbidden_token_is_not_refreshed_for_more_rights(
    world: World, servers: tuple[McpServer, McpServer]
) -> None:
    first, _ = servers
    granted = first.grant()
    first.ban(granted.access_token)
    world.oauth(
        first.url("/private/mcp"),
        granted.access_token,
        granted.refresh_token,
        first.token_endpoint,
    )
    assert await _failed(world, first.url("/private/mcp")) == "mcp_authentication_failed"
    assert first.refreshes() == 0


@pytest.mark.parametrize("path", ["/private/mcp", "/private/old", "/private/json/mcp"])
async def test_a_server_that_shows_the_token_shows_it_to_nobody(
    world: World, servers: tuple[McpServer, McpServer], path: str
) -> None:
    first, _ = servers
    world.bearer(first.url(path), TOKEN)
    shown = await _called(world, first.url(path), "headers")
    assert "authorization" in shown
    assert TOKEN not in shown
    assert "*" * len(TOKEN) in shown
    assert f"Bearer {TOKEN}" in _sent(first)


async def test_a_refusal_that_shows_the_token_shows_it_to_nobody(
    world: World, servers: tuple[McpServer, McpServer]
) -> None:
    first, _ = servers
    world.bearer(first.url("/private/mcp"), "tok-that-is-not-known")
    with pytest.raises(DroverError) as refused:
        await _called(world, first.url("/private/mcp"))
    assert "tok-that" not in refused.value.message
    assert "tok-that" not in repr(refused.value.__cause__.__dict__)


async def test_sessions_share_no_connection(
    world: World, servers: tuple[McpServer, McpServer]
) -> None:
    first, _ = servers
    url = first.url("/private/old")
    world.bearer(url, TOKEN)
    for session in ("sesn_1", "sesn_2"):
        await _called(world, url, session=session)
    ids = {
        one["headers"].get("mcp-session-id")
        for one in first.report()["seen"]
        if one["method"] == "tools/call"
    }
    assert len(ids) == 2


async def test_a_token_that_no_header_can_hold_is_not_sent(
    world: World, servers: tuple[McpServer, McpServer]
) -> None:
    first, _ = servers
    world.bearer(first.url("/private/mcp"), "tok\r\nx-other: 1")
    assert await _failed(world, first.url("/private/mcp")) == "mcp_authentication_failed"
    assert not first.report()["seen"]


async def test_a_rotated_token_counts_from_the_next_call_on(
    world: World, servers: tuple[McpServer, McpServer]
) -> None:
    first, _ = servers
    url = first.url("/private/old")
    world.bearer(url, TOKEN)
    await _called(world, url)
    first.allow("tok-rotated")
    world.bearer(url, "tok-rotated")
    first.forget()
    await _called(world, url)
    assert _sent(first) == {"Bearer tok-rotated"}
    world.vaults.kept.clear()
    assert await _failed(world, url) == "mcp_authentication_failed"
