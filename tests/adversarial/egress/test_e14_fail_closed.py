"""E14: where what is allowed cannot be found out, nothing is."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from chassis.errors import DroverError, Reason
from services.vault_proxy.domain.audit import AuditEntry
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from tests.doubles.egress import session
from tests.doubles.egress_proxy import GRANT, World, proxied
from tests.doubles.origin import Origin

ALLOWED = "allowed.example"


def _get(port: int) -> bytes:
    at = f"{ALLOWED}:{port}"
    return f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (DroverError(Reason.UNAVAILABLE, "away"), "policy_unavailable"),
        (RefusedError(Refusal(Why.SESSION_ENDED, "over")), "session_ended"),
        (RefusedError(Refusal(Why.GRANT_REVOKED, "taken back")), "grant_revoked"),
    ],
)
async def test_a_policy_that_cannot_be_had_denies_in_new_and_in_kept_connections(
    world: World, server: Origin, failure: Exception, why: str
) -> None:
    kept = await world.sandbox()
    assert (await kept.ask(_get(server.port))).status == 200
    world.failure = failure
    for sandbox in (kept, await world.sandbox()):
        answered = await sandbox.ask(_get(server.port))
        assert (answered.status, answered.why) == (403, why)
    assert len(server.asked) == 1


async def test_an_unforeseen_failure_ends_the_connection_and_no_other(
    world: World, server: Origin
) -> None:
    other = await world.sandbox()
    assert (await other.ask(_get(server.port))).status == 200
    sandbox = await world.sandbox()
    world.failure = RuntimeError("the rules are broken")
    sandbox.send(_get(server.port))
    assert await sandbox.ended()
    world.failure = None
    assert (await other.ask(_get(server.port))).status == 200
    assert len(server.asked) == 2


async def test_a_decision_that_cannot_be_recorded_is_not_carried_out(
    world: World, server: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: World, _entry: AuditEntry) -> None:
        raise DroverError(Reason.UNAVAILABLE, "the trail is full")

    monkeypatch.setattr(World, "record", broken)
    for host in (ALLOWED, "denied.example", "not a host"):
        sandbox = await world.sandbox()
        sandbox.send(_get(server.port).replace(ALLOWED.encode(), host.encode()))
        async with asyncio.timeout(30):
            assert await sandbox.ended()
    assert server.asked == []


async def test_no_networking_at_all_is_no_hosts(world: World, server: Origin) -> None:
    world.sessions[GRANT] = session(allowed=[])
    sandbox = await world.sandbox()
    answered = await sandbox.ask(_get(server.port))
    assert (answered.status, answered.why) == (403, "host_not_allowed")


@pytest.mark.parametrize(
    "preamble", [b"", b"DROVER/2 grant-1\n", b"DROVER/1 \n", b"DROVER/1 a b\n"]
)
async def test_without_a_preamble_nothing_is_served(
    world: World, server: Origin, preamble: bytes
) -> None:
    host, _, port = world.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(preamble + _get(server.port))
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert server.connections == 0


async def test_a_grant_that_is_not_known_is_denied(world: World, server: Origin) -> None:
    sandbox = await world.sandbox("made-up")
    answered = await sandbox.ask(_get(server.port))
    assert (answered.status, answered.why) == (403, "grant_invalid")


async def test_a_proxy_that_ends_cuts_what_is_under_way_short(server: Origin) -> None:
    world = World(sessions={GRANT: session(allowed=[ALLOWED])})
    world.open(ALLOWED, port=server.port)
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
    server.reply = lambda _: half
    async with proxied(world):
        sandbox = await world.sandbox()
        sandbox.send(_get(server.port))
        await sandbox.reader.readuntil(b"half")
    assert await sandbox.ended()
