"""Grants at the egress proxy's door, with the sessions and the clock of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from services.vault_proxy.domain.grant import LIFE_SECONDS
from services.vault_proxy.grants.sessions import LivePolicy
from tests.doubles.egress import policy, session
from tests.doubles.egress_proxy import Sandbox, World, proxied
from tests.doubles.grants import WORKSPACE, GrantWorld
from tests.doubles.origin import Origin, origin

HOST = "api.example.com"


@dataclass(slots=True)
class GrantedWorld(World):
    """A proxy that takes real grants."""

    grants: GrantWorld | None = None

    async def of_grant(self, grant: str) -> LivePolicy:
        assert self.grants is not None
        return self._opened(await self.grants.granted.of_grant(grant))

    async def again(self, grant: str) -> LivePolicy:
        assert self.grants is not None
        return self._opened(await self.grants.granted.again(grant))

    def _opened(self, live: LivePolicy) -> LivePolicy:
        # an installation that opens the test's server
        opened = policy(live.facts.session, private=self.private)
        return LivePolicy(live.facts, opened, live.known, live.authorities)


@pytest.fixture
async def server() -> AsyncIterator[Origin]:
    async with origin() as made:
        yield made


@pytest.fixture
async def world(server: Origin) -> AsyncIterator[GrantedWorld]:
    made = GrantedWorld(grants=GrantWorld())
    made.open(HOST, port=server.port)
    async with proxied(made):
        yield made


async def _ask(sandbox: Sandbox, server: Origin) -> tuple[int, str | None]:
    at = f"{HOST}:{server.port}"
    answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    return answered.status, answered.why


async def test_a_kept_connection_goes_on_after_its_grant_has_ended_and_no_new_one_begins(
    world: GrantedWorld, server: Origin
) -> None:
    assert world.grants is not None
    grant = await world.grants.give()
    sandbox = await world.sandbox(grant)
    assert await _ask(sandbox, server) == (200, None)
    world.grants.clock.passed += LIFE_SECONDS
    assert await _ask(sandbox, server) == (200, None)
    late = await world.sandbox(grant)
    assert await _ask(late, server) == (403, "grant_expired")
    renewed = await world.sandbox(await world.grants.give())
    assert await _ask(renewed, server) == (200, None)


async def test_a_kept_connection_ends_with_its_session(world: GrantedWorld, server: Origin) -> None:
    assert world.grants is not None
    sandbox = await world.sandbox(await world.grants.give())
    assert await _ask(sandbox, server) == (200, None)
    world.grants.sessions["sesn_1"].archived_at.GetCurrentTime()
    world.grants.clock.passed += 1
    assert await _ask(sandbox, server) == (403, "session_ended")
    assert len(server.asked) == 1


async def test_a_kept_connection_ends_when_grants_are_taken_back(
    world: GrantedWorld, server: Origin
) -> None:
    assert world.grants is not None
    sandbox = await world.sandbox(await world.grants.give())
    assert await _ask(sandbox, server) == (200, None)
    await world.grants.giving.revoke(WORKSPACE, "sesn_1")
    assert await _ask(sandbox, server) == (403, "grant_revoked")


async def test_another_networking_applies_to_the_next_request_of_a_kept_connection(
    world: GrantedWorld, server: Origin
) -> None:
    assert world.grants is not None
    sandbox = await world.sandbox(await world.grants.give())
    assert await _ask(sandbox, server) == (200, None)
    world.grants.sessions["sesn_1"] = session(allowed=[])
    world.grants.clock.passed += 1
    assert await _ask(sandbox, server) == (403, "host_not_allowed")
