"""A vault proxy that stops while a refresh token is being exchanged keeps what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from ipaddress import IPv4Address

from prometheus_client import CollectorRegistry

from services.vault_proxy.domain.addresses import AddressRules, InClear, openings
from services.vault_proxy.mcp.later import Needs
from services.vault_proxy.mcp.limits import Limits
from services.vault_proxy.mcp.room import furnish
from services.vault_proxy.outbound import Outbound, trust
from services.vault_proxy.proxy.dial import JudgingDialler
from tests.doubles.mcp_server import running_mcp_server
from tests.doubles.mcp_world import mcp_world


async def test_an_exchange_that_is_under_way_is_finished_and_kept() -> None:
    async def resolve(_name: str) -> Sequence[IPv4Address]:
        return [IPv4Address("127.0.0.1")]

    with running_mcp_server() as server:
        opened = AddressRules(openings(f"127.0.0.1/32:{server.port}"))
        outbound = Outbound(
            JudgingDialler(opened, resolve),
            trust(None),
            JudgingDialler(InClear(opened), resolve),
        )
        url, granted = server.url("/private/mcp"), server.grant()
        async with mcp_world(server.port) as world, asyncio.TaskGroup() as tasks:
            world.oauth(
                url,
                granted.access_token,
                granted.refresh_token,
                server.token_endpoint,
                expires_in=-5,
            )
            server.hold_tokens()
            limits, registry = Limits(close_seconds=0.01), CollectorRegistry()
            needs = Needs(world.vaults, outbound, world.trail, world.clock, registry, limits)
            async with AsyncExitStack() as stack:
                room = await furnish(needs, tasks, stack)
                call = tasks.create_task(
                    room.servers.call(world.facts(url), "srv", "count", "{}", "c")
                )
                async with asyncio.timeout(30):
                    while not await asyncio.to_thread(server.refreshes):
                        pass
                call.cancel()
                with suppress(asyncio.CancelledError):
                    await call
                asyncio.get_running_loop().call_later(0.1, server.release_tokens)
            refresh = world.stored().refresh
            assert refresh is not None
            assert not refresh.refresh_token.matches(granted.refresh_token)
