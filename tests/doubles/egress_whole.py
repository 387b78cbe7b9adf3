"""Sandboxes attached to the real egress proxy: everything between a program and a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from chassis.clock import SystemClock
from chassis.secret import Secret
from identity.authority import Authority, place
from identity.credentials import Credentials
from services.hands.egress.grants import Grant, Grants
from services.hands.egress.metrics import EgressMetrics
from services.hands.egress.network import Network
from services.hands.egress.proxy import ProxyAddress
from tests.doubles.egress_proxy import GRANT, World, proxied

_LIFE = 300.0


class Whole:
    """Attaches sandboxes to a world's proxy; all of them serve its one session.

    As between machines: over TCP, where hands and proxy show each other who they are.
    """

    def __init__(self, world: World, tls: Credentials) -> None:
        self.world = world
        self._tls = tls

    async def network(self, directory: Path, tasks: asyncio.TaskGroup) -> Network:
        network = Network(
            directory,
            ProxyAddress(self.world.address, self._tls),
            Grants(self, tasks, SystemClock()),
            tasks,
            most=128,
            clock=SystemClock(),
            metrics=EgressMetrics(),
        )
        await network.start()
        return network

    async def open(self, session_id: str, hand_id: str) -> Grant:
        assert session_id
        assert hand_id
        now = SystemClock().monotonic()
        return Grant(
            Secret(GRANT),
            now + _LIFE / 2,
            now + _LIFE,
            self.world.authority.certificate,
            {one.name: text.decode() for text, one in self.world.holdings.placeholders},
        )

    async def revoke(self, session_id: str) -> None:
        del self.world.sessions[GRANT]


@asynccontextmanager
async def whole(world: World) -> AsyncIterator[Whole]:
    """The proxy runs while the body does."""
    with TemporaryDirectory() as folder:
        made, now = Authority.make(SystemClock().now()), SystemClock().now()
        hands, proxy = Path(folder) / "hands", Path(folder) / "vault_proxy"
        for place_of in (hands, proxy):
            place(place_of, made.pem, made.issue(place_of.name, now))
        world.tls = Credentials.read(proxy, "vault_proxy").server_context()
        async with proxied(world):
            yield Whole(world, Credentials.read(hands, "hands"))
