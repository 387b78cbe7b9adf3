"""MCP put together: for sessions, and for those who save credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from services.vault_proxy.mcp.greeting import quiet
from services.vault_proxy.mcp.meter import McpMeter
from services.vault_proxy.mcp.probe import LiveProbe
from services.vault_proxy.mcp.records import Records
from services.vault_proxy.mcp.servers import McpServers
from services.vault_proxy.oauth.endpoint import TOKEN_SECONDS, TokenEndpoints
from services.vault_proxy.oauth.tokens import AccessTokens
from services.vault_proxy.outbound import Timeouts

if TYPE_CHECKING:
    import asyncio
    from contextlib import AsyncExitStack

    from services.vault_proxy.mcp.later import Needs


class Room(NamedTuple):
    """What MCP does for others."""

    servers: McpServers
    probe: LiveProbe


async def furnish(needs: Needs, tasks: asyncio.TaskGroup, stack: AsyncExitStack) -> Room:
    """Builds it; `stack` ends it, before its tasks are waited for."""
    quiet()
    meter = McpMeter(needs.registry)
    records = Records(needs.audit, needs.clock, meter)
    client = await stack.enter_async_context(
        needs.outbound.client(timeouts=Timeouts(idle=TOKEN_SECONDS))
    )
    tokens = AccessTokens(
        needs.credentials, TokenEndpoints(client, needs.clock), needs.clock, tasks
    )
    stack.push_async_callback(tokens.settle)
    probe = LiveProbe(tokens, needs.outbound, records, tasks=tasks, limits=needs.limits)
    servers = McpServers(
        needs.credentials,
        tokens,
        needs.outbound,
        records,
        tasks=tasks,
        meter=meter,
        limits=needs.limits,
    )
    stack.push_async_callback(servers.close)
    return Room(servers, probe)
