"""V8: MCP servers and token endpoints obey the rules for addresses, and redirect nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from chassis.errors import DroverError
from tests.doubles.mcp_server import McpServer, running_mcp_server
from tests.doubles.mcp_world import World, mcp_world

INSIDE = [
    "127.0.0.1",
    "10.1.2.3",
    "192.168.0.1",
    "172.16.9.9",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",  # noqa: S104
    "[::1]",
    "[fd00::1]",
    "[fe80::1]",
    "[::ffff:10.0.0.1]",
    "[64:ff9b::a00:1]",
    "inside.example.com",
]


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with running_mcp_server() as running:
        yield running


@pytest.fixture
async def world(server: McpServer) -> AsyncIterator[World]:
    server.forget()
    server.token_fault(None)
    async with mcp_world(server.port, server.faults_port) as made:
        made.names["inside.example.com"] = "10.9.8.7"
        yield made


async def _refused(world: World, url: str) -> DroverError:
    with pytest.raises(DroverError) as refused:
        await world.servers.call(world.facts(url), "srv", "echo", "{}", "c")
    return refused.value


@pytest.mark.parametrize("host", INSIDE)
async def test_no_mcp_server_is_inside(world: World, host: str) -> None:
    world.bearer(f"http://{host}/mcp", "tok-inside")
    error = await _refused(world, f"http://{host}/mcp")
    assert error.error_code == "mcp_connection_failed"
    assert world.trail.reasons() == [("tools/call", "address_not_allowed")]
    assert world.trail.entries[0].verdict == "denied"


@pytest.mark.parametrize("host", INSIDE)
async def test_no_token_endpoint_is_inside(world: World, server: McpServer, host: str) -> None:
    world.oauth(server.url("/private/mcp"), "at-old", "rt-old", f"http://{host}/t", expires_in=-5)
    error = await _refused(world, server.url("/private/mcp"))
    assert error.error_code == "mcp_connection_failed"
    assert "rt-old" not in error.message
    assert not server.report()["seen"]


@pytest.mark.parametrize("path", ["/away", "/redirect"])
async def test_a_server_that_redirects_is_not_followed(
    world: World, server: McpServer, path: str
) -> None:
    world.bearer(server.fault(path), "tok-redirected")
    error = await _refused(world, server.fault(path))
    assert error.error_code == "mcp_connection_failed"
    assert "redirects" in error.message
    assert {one["path"] for one in server.report()["faults"]} == {path}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_token_endpoint_that_redirects_is_not_followed(
    world: World, server: McpServer, status: int
) -> None:
    granted = server.grant()
    world.oauth(
        server.url("/private/mcp"),
        granted.access_token,
        granted.refresh_token,
        server.token_endpoint,
        expires_in=-5,
    )
    server.token_fault({"redirect": server.fault("/token"), "status": status})
    error = await _refused(world, server.url("/private/mcp"))
    assert error.error_code == "mcp_connection_failed"
    report = server.report()
    assert (len(report["token_requests"]), report["faults"], report["seen"]) == (1, [], [])


@pytest.mark.parametrize(
    "url",
    [
        "ftp://files.example.com/mcp",
        "http://user:pass@127.0.0.1/mcp",
        "http://127.0.0.1:0/mcp",
        "http://a b/mcp",
        "http://h\r\nx: y/mcp",
        "file:///etc/passwd",
        "http://0x7f000001.example.com#/mcp",
    ],
)
async def test_what_is_no_url_of_a_server_is_asked_nothing(world: World, url: str) -> None:
    error = await _refused(world, url)
    assert error.error_code == "mcp_connection_failed"


async def test_a_port_that_no_operator_opened_is_closed(world: World) -> None:
    world.names["outside.example.com"] = "93.184.216.34"
    error = await _refused(world, "http://outside.example.com:6379/mcp")
    assert error.error_code == "mcp_connection_failed"
    assert "port 6379" in error.message


@pytest.mark.parametrize("port", ["", ":80"])
async def test_a_public_server_gets_no_token_in_the_clear(world: World, port: str) -> None:
    world.names["outside.example.com"] = "93.184.216.34"
    world.bearer(f"http://outside.example.com{port}/mcp", "tok-in-clear")
    error = await _refused(world, f"http://outside.example.com{port}/mcp")
    assert error.error_code == "mcp_connection_failed"
    assert "credential was not sent" in error.message
    assert "https://" in error.message
    assert "tok-in-clear" not in error.message
    assert world.trail.reasons() == [("tools/call", "address_not_allowed")]


async def test_a_public_token_endpoint_gets_no_refresh_token_in_the_clear(
    world: World, server: McpServer
) -> None:
    world.names["outside.example.com"] = "93.184.216.34"
    endpoint = "http://outside.example.com/token"
    world.oauth(server.url("/private/mcp"), "at-old", "rt-old", endpoint, expires_in=-5)
    error = await _refused(world, server.url("/private/mcp"))
    assert error.error_code == "mcp_connection_failed"
    assert "credential was not sent" in error.message
    assert "rt-old" not in error.message
    assert not server.report()["seen"]


@pytest.mark.parametrize(
    ("listed", "all_servers", "reached"),
    [((), False, False), ((), True, True), (("localhost.example.com",), False, True)],
)
async def test_limited_networking_holds_for_servers(
    world: World, server: McpServer, listed: tuple[str, ...], all_servers: bool, reached: bool
) -> None:
    facts = world.facts(server.url().replace("127.0.0.1", "localhost.example.com"))
    limited = facts.session.environment.cloud.networking.limited
    limited.allowed_hosts.extend(listed)
    limited.allow_mcp_servers = all_servers
    if reached:
        await world.servers.call(facts, "srv", "echo", "{}", "c")
        assert world.trail.reasons() == [("tools/call", "")]
        return
    with pytest.raises(DroverError, match="allow_mcp_servers"):
        await world.servers.call(facts, "srv", "echo", "{}", "c")
    assert world.trail.reasons() == [("tools/call", "host_not_allowed")]
    assert not server.report()["seen"]


async def test_networking_that_cannot_be_read_opens_nothing(
    world: World, server: McpServer
) -> None:
    facts = world.facts(server.url())
    facts.session.environment.Clear()
    with pytest.raises(DroverError, match="networking is not known"):
        await world.servers.call(facts, "srv", "echo", "{}", "c")
    assert not server.report()["seen"]
