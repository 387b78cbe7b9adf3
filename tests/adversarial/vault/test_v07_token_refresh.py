"""V7: tokens are refreshed once, kept before they are used, and given up only when refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from services.vault_proxy.domain.audit import Kind
from services.vault_proxy.domain.server_credential import OauthCredential
from tests.doubles.mcp_server import Granted, McpServer, running_mcp_server
from tests.doubles.mcp_world import World, mcp_world

PATH = "/private/mcp"
ODD = "s%c/ret+: ü"


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with running_mcp_server() as running:
        yield running


@pytest.fixture
async def world(server: McpServer) -> AsyncIterator[World]:
    server.forget()
    server.token_fault(None)
    server.tokens()
    async with mcp_world(server.port, idle=10) as made:
        yield made


def _saved(
    world: World, server: McpServer, *, expires_in: float | None = 3600
) -> tuple[Granted, OauthCredential]:
    granted = server.grant()
    saved = world.oauth(
        server.url(PATH),
        granted.access_token,
        granted.refresh_token,
        server.token_endpoint,
        expires_in=expires_in,
    )
    return granted, saved


async def _count(world: World, server: McpServer) -> str:
    answer = await world.servers.call(world.facts(server.url(PATH)), "srv", "count", "{}", "c")
    return answer.content[0].text.text


async def _refused(world: World, server: McpServer) -> str | None:
    with pytest.raises(DroverError) as refused:
        await _count(world, server)
    return refused.value.error_code


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(true):
            pass


def _tokens_seen(server: McpServer) -> set[str]:
    seen = server.report()["seen"]
    return {one["headers"].get("authorization", "").removeprefix("Bearer ") for one in seen}


async def test_fifty_calls_at_expiry_refresh_once(world: World, server: McpServer) -> None:
    granted, _ = _saved(world, server, expires_in=-5)
    server.hold_tokens()
    calls = [asyncio.create_task(_count(world, server)) for _ in range(50)]
    await _until(lambda: server.refreshes() == 1)
    server.release_tokens()
    assert sorted(map(int, await asyncio.gather(*calls))) == list(range(1, 51))
    assert server.refreshes() == 1
    assert granted.access_token not in _tokens_seen(server)
    assert server.report()["spent"][-1] == granted.refresh_token
    kinds = [entry.kind for entry in world.trail.entries]
    assert (kinds.count(Kind.OAUTH), kinds.count(Kind.MCP)) == (1, 50)


async def test_a_rotated_refresh_token_is_the_one_that_is_used_next(
    world: World, server: McpServer
) -> None:
    granted, _ = _saved(world, server)
    used = [granted.refresh_token]
    for _ in range(3):
        world.vaults.add(replace(world.stored(), expires_at=world.clock.now()))
        await _count(world, server)
        refresh = world.stored().refresh
        assert refresh is not None
        used.append(refresh.refresh_token.open())
    asked = [one["refresh_token"] for one in server.report()["token_requests"]]
    assert asked == used[:3]
    assert len(set(used)) == 4


async def test_a_refresh_token_that_is_not_rotated_stays(world: World, server: McpServer) -> None:
    granted, _ = _saved(world, server, expires_in=0.001)
    server.tokens(rotates=False)
    await _count(world, server)
    refresh = world.stored().refresh
    assert refresh is not None
    assert refresh.refresh_token.matches(granted.refresh_token)


async def test_new_tokens_are_not_used_unless_they_are_kept(
    world: World, server: McpServer
) -> None:
    _, saved = _saved(world, server, expires_in=-5)
    world.vaults.broken = [DroverError(Reason.INTERNAL, "the disk is gone")]
    assert await _refused(world, server) == "mcp_connection_failed"
    assert server.refreshes() == 1
    assert not server.report()["seen"]
    assert world.stored() == saved


@pytest.mark.parametrize(
    ("reason", "times"),
    [(Reason.UNAVAILABLE, 5), (Reason.RESOURCE_EXHAUSTED, 1), (Reason.INTERNAL, 1)],
)
async def test_new_tokens_that_could_not_be_stored_are_stored_later_and_not_asked_for_again(
    world: World, server: McpServer, reason: Reason, times: int
) -> None:
    granted, _ = _saved(world, server, expires_in=-5)
    world.vaults.broken = [DroverError(reason, "no room") for _ in range(times)]
    assert await _refused(world, server) == "mcp_connection_failed"
    assert not server.report()["seen"]
    await _count(world, server)
    assert server.refreshes() == 1
    refresh = world.stored().refresh
    assert refresh is not None
    assert not refresh.refresh_token.matches(granted.refresh_token)
    assert _tokens_seen(server) == {world.stored().access_token.open()}
    assert [one.reason for one in world.trail.entries if one.kind is Kind.OAUTH] == [""]


async def test_tokens_that_were_saved_since_win_over_those_that_could_not_be_stored(
    world: World, server: McpServer
) -> None:
    _saved(world, server, expires_in=-5)
    world.vaults.broken = [DroverError(Reason.INTERNAL, "the disk is gone")]
    await _refused(world, server)
    other, _ = _saved(world, server)
    await _count(world, server)
    assert world.stored().access_token.matches(other.access_token)
    assert _tokens_seen(server) == {other.access_token}


async def test_a_fault_of_ones_own_ends_the_call_and_not_the_process(
    world: World, server: McpServer
) -> None:
    _saved(world, server, expires_in=-5)
    world.vaults.broken = [ZeroDivisionError()]
    assert await _refused(world, server) == "mcp_connection_failed"
    assert not server.report()["seen"]
    server.forget()
    async with mcp_world(server.port, idle=10) as other:
        other.bearer(server.url(PATH), server.grant().access_token)
        await _count(other, server)


async def test_a_database_that_is_away_for_a_moment_costs_no_token(
    world: World, server: McpServer
) -> None:
    _saved(world, server, expires_in=-5)
    world.vaults.broken = [DroverError(Reason.UNAVAILABLE, "later") for _ in range(2)]
    await _count(world, server)
    assert server.refreshes() == 1
    assert world.stored().access_token.open() in _tokens_seen(server)


async def test_a_change_beside_the_tokens_costs_no_token(world: World, server: McpServer) -> None:
    _, saved = _saved(world, server, expires_in=-5)
    server.hold_tokens()
    call = asyncio.create_task(_count(world, server))
    await _until(lambda: server.refreshes() == 1)
    world.vaults.add(replace(saved, revision=7))
    server.release_tokens()
    await call
    assert world.stored().revision == 8
    assert not world.stored().access_token.matches(saved.access_token.open())


async def test_tokens_that_somebody_saved_meanwhile_win(world: World, server: McpServer) -> None:
    _, saved = _saved(world, server, expires_in=-5)
    newer = server.grant()
    server.hold_tokens()
    call = asyncio.create_task(_count(world, server))
    await _until(lambda: server.refreshes() == 1)
    world.vaults.add(
        replace(saved, access_token=Secret(newer.access_token), expires_at=None, revision=2)
    )
    server.release_tokens()
    await call
    assert _tokens_seen(server) == {newer.access_token}


async def test_a_refused_token_is_refreshed_and_the_call_made_once(
    world: World, server: McpServer
) -> None:
    granted, _ = _saved(world, server, expires_in=None)
    server.revoke(granted.access_token)
    assert await _count(world, server) == "1"
    assert server.refreshes() == 1


async def test_a_token_that_is_refused_as_soon_as_it_is_new_is_no_loop(
    world: World, server: McpServer
) -> None:
    _saved(world, server, expires_in=None)
    server.tokens(expires_in=-10)
    world.vaults.add(replace(world.stored(), access_token=Secret("at-nobody-knows")))
    assert await _refused(world, server) == "mcp_authentication_failed"
    assert server.refreshes() == 1
    assert server.runs("count") == 0


async def test_invalid_grant_is_an_authentication_failure_and_not_asked_again(
    world: World, server: McpServer
) -> None:
    granted, saved = _saved(world, server, expires_in=-5)
    server.revoke(granted.refresh_token)
    for _ in range(2):
        assert await _refused(world, server) == "mcp_authentication_failed"
    assert server.refreshes() == 1
    assert ("POST", "token_endpoint_refused") in world.trail.reasons()
    assert not server.report()["seen"]

    fresh = server.grant()
    assert saved.refresh is not None
    refresh = replace(saved.refresh, refresh_token=Secret(fresh.refresh_token))
    world.vaults.add(replace(saved, refresh=refresh, revision=2))
    assert await _count(world, server) == "1"


async def test_a_token_endpoint_in_trouble_is_asked_once_more(
    world: World, server: McpServer
) -> None:
    _saved(world, server, expires_in=-5)
    server.token_fault({"status": 503, "times": 1})
    assert await _count(world, server) == "1"
    assert server.refreshes() == 2


async def test_a_token_endpoint_that_stays_in_trouble_is_asked_again_by_the_next_call(
    world: World, server: McpServer
) -> None:
    _saved(world, server, expires_in=-5)
    server.token_fault({"status": 503})
    assert await _refused(world, server) == "mcp_connection_failed"
    server.token_fault(None)
    assert await _count(world, server) == "1"


async def test_a_token_endpoint_that_does_not_answer_is_not_asked_twice(
    world: World, server: McpServer
) -> None:
    _saved(world, server, expires_in=-5)
    server.token_fault({"hang": True, "times": 1})
    async with mcp_world(server.port, idle=0.3) as impatient:
        impatient.vaults.kept = world.vaults.kept
        assert await _refused(impatient, server) == "mcp_connection_failed"
    assert server.refreshes() == 1


async def test_clocks_that_differ_are_allowed_for(world: World, server: McpServer) -> None:
    _saved(world, server, expires_in=30)
    await _count(world, server)
    assert server.refreshes() == 1
    world.clock.ahead = timedelta(seconds=3600 - 30)
    await _count(world, server)
    assert server.refreshes() == 2


async def test_a_token_that_is_still_good_is_used_where_no_other_can_be_had(
    world: World, server: McpServer
) -> None:
    granted, _ = _saved(world, server, expires_in=30)
    server.token_fault({"status": 500})
    assert await _count(world, server) == "1"
    assert _tokens_seen(server) == {granted.access_token}


@pytest.mark.parametrize("issuer", ["https://evil.example.com", "http://127.0.0.2:1", 7, ["x"]])
async def test_an_answer_in_the_name_of_another_issuer_is_refused(
    world: World, server: McpServer, issuer: object
) -> None:
    _, saved = _saved(world, server, expires_in=-5)
    server.token_fault({"merge": {"iss": issuer}})
    assert await _refused(world, server) == "mcp_authentication_failed"
    assert world.stored() == saved
    assert not server.report()["seen"]


@pytest.mark.parametrize(
    "answer",
    [
        {"access_token": "a b"},
        {"access_token": "x\r\nhost: evil"},
        {"access_token": ""},
        {"access_token": None},
        {"token_type": "mac"},
        {"refresh_token": "r\n"},
    ],
)
async def test_an_answer_that_is_no_token_is_not_kept(
    world: World, server: McpServer, answer: dict[str, object]
) -> None:
    _, saved = _saved(world, server, expires_in=-5)
    server.token_fault({"merge": answer})
    assert await _refused(world, server) == "mcp_connection_failed"
    assert world.stored() == saved


@pytest.mark.parametrize("body", ["[" * 60_000, "x" * 70_000, "{", '{"expires_in": 1e999}'])
async def test_an_answer_that_is_no_answer_is_an_endpoint_in_trouble(
    world: World, server: McpServer, body: str
) -> None:
    _saved(world, server, expires_in=-5)
    server.token_fault({"status": 200, "body": body})
    assert await _refused(world, server) == "mcp_connection_failed"


async def test_a_caller_that_goes_away_loses_nobody_a_token(
    world: World, server: McpServer
) -> None:
    granted, _ = _saved(world, server, expires_in=-5)
    server.hold_tokens()
    call = asyncio.create_task(_count(world, server))
    await _until(lambda: server.refreshes() == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    server.release_tokens()
    await _until(lambda: not world.stored().access_token.matches(granted.access_token))
    assert await _count(world, server) == "1"
    assert server.refreshes() == 1


async def test_a_replica_that_was_slower_takes_what_the_other_has_kept(
    world: World, server: McpServer
) -> None:
    granted, saved = _saved(world, server, expires_in=-5)
    newer = server.grant()
    server.revoke(granted.refresh_token)
    others = replace(saved, access_token=Secret(newer.access_token), expires_at=None, revision=2)
    # What the other replica got is stored by the time that this one has been refused.
    world.vaults.before_latest = lambda: server.refreshes() and world.vaults.add(others)
    assert await _count(world, server) == "1"
    assert _tokens_seen(server) == {newer.access_token}


async def test_two_replicas_at_once_end_with_one_new_token(world: World, server: McpServer) -> None:
    _saved(world, server, expires_in=-5)
    server.hold_tokens()
    async with mcp_world(server.port, idle=10) as replica:
        replica.vaults.kept = world.vaults.kept
        calls = [
            asyncio.create_task(_count(one, server)) for _ in range(10) for one in (world, replica)
        ]
        await _until(lambda: server.refreshes() == 2)
        server.release_tokens()
        assert sorted(map(int, await asyncio.gather(*calls))) == list(range(1, 21))
    assert _tokens_seen(server) == {world.stored().access_token.open()}
    assert world.stored().revision == 2


async def test_a_credential_that_is_deleted_meanwhile_is_used_no_more(
    world: World, server: McpServer
) -> None:
    _saved(world, server, expires_in=-5)
    server.hold_tokens()
    call = asyncio.create_task(_refused(world, server))
    await _until(lambda: server.refreshes() == 1)
    world.vaults.kept.clear()
    server.release_tokens()
    assert await call == "mcp_authentication_failed"
    assert not server.report()["seen"]


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_clients_authenticate_as_they_are_registered(
    world: World, server: McpServer, method: str
) -> None:
    client = f"client {method}"
    granted = server.grant(client, client_secret=ODD, method=method, scope="a b")
    world.oauth(
        server.url(PATH),
        granted.access_token,
        granted.refresh_token,
        server.token_endpoint,
        expires_in=-5,
        client=(client, method, ODD),  # type: ignore[arg-type]
        scope="a",
        resource="https://mcp.example.com",
    )
    assert await _count(world, server) == "1"
    asked = server.report()["token_requests"][0]
    assert asked["scope"] == "a"
    assert asked["resource"] == "https://mcp.example.com"
    assert ("client_secret" in asked) == (method == "client_secret_post")
