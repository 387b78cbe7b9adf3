"""A proxy between a sandbox and one server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.doubles.egress import session
from tests.doubles.egress_proxy import GRANT, World, proxied
from tests.doubles.origin import Origin, origin

ALLOWED = "allowed.example"


@pytest.fixture
async def server() -> AsyncIterator[Origin]:
    """A plain server that is `allowed.example`."""
    async with origin() as made:
        yield made


@pytest.fixture
async def world(server: Origin) -> AsyncIterator[World]:
    """The session may reach `allowed.example` alone; `denied.example` leads to the same server."""
    made = World(sessions={GRANT: session(allowed=[ALLOWED])})
    made.open(ALLOWED, "denied.example", port=server.port)
    async with proxied(made):
        yield made


@pytest.fixture
async def secure(world: World) -> AsyncIterator[Origin]:
    """A server of the same name that speaks TLS."""
    async with origin(ALLOWED, authority=world.outside) as made:
        world.open(port=made.port)
        yield made
