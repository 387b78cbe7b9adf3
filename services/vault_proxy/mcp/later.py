"""MCP for who must not wait for it: its library takes longer to import than all else together.

The process serves meanwhile; who needs MCP in its first second waits for it.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from prometheus_client import CollectorRegistry

    from chassis.clock import Clock
    from drover.vault.v1.credential_pb2 import CredentialValidation
    from drover.vault.v1.credential_proxy_service_pb2 import CallResponse, ListToolsResponse
    from services.vault_proxy.domain.ports import Audit
    from services.vault_proxy.domain.server_credential import OauthCredential, ServerCredentials
    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.mcp.limits import Limits
    from services.vault_proxy.mcp.room import Room
    from services.vault_proxy.outbound import Outbound

_AGAIN_SECONDS: Final = 1.0
_log = structlog.get_logger("vault_proxy.mcp")


@dataclass(frozen=True, slots=True)
class Needs:
    """What MCP is made of."""

    credentials: ServerCredentials
    outbound: Outbound
    audit: Audit
    clock: Clock
    registry: CollectorRegistry
    limits: Limits


class McpLater:
    """Implements `ToolServers` and `CredentialProbe`. Entered, it begins to get ready."""

    def __init__(self, needs: Needs, tasks: asyncio.TaskGroup) -> None:
        self._needs = needs
        self._tasks = tasks
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._room = self._tasks.create_task(self._furnished(), name="mcp")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._room.cancel()
        await asyncio.wait((self._room,))
        await self._stack.aclose()

    async def list_tools(self, facts: SessionFacts, server: str) -> ListToolsResponse:
        """What the server offers."""
        return await (await self._ready()).servers.list_tools(facts, server)

    async def call(
        self, facts: SessionFacts, server: str, tool: str, arguments: str, call_id: str
    ) -> CallResponse:
        """Calls one of its tools, once."""
        return await (await self._ready()).servers.call(facts, server, tool, arguments, call_id)

    async def validate(
        self, workspace_id: str, credential: OauthCredential
    ) -> CredentialValidation:
        """Tries a credential against its server."""
        return await (await self._ready()).probe.validate(workspace_id, credential)

    async def _ready(self) -> Room:
        return await asyncio.shield(self._room)

    async def _furnished(self) -> Room:
        while not await asyncio.to_thread(_imported):  # noqa: ASYNC110  # nothing tells of room
            await asyncio.sleep(_AGAIN_SECONDS)
        from services.vault_proxy.mcp.room import furnish  # noqa: PLC0415  # it is there by now

        return await furnish(self._needs, self._tasks, self._stack)


def _imported() -> bool:
    """Whether it was imported, and not for want of descriptors."""
    try:
        importlib.import_module("services.vault_proxy.mcp.room")
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        _log.warning("mcp_not_ready", reason=error.strerror, again_in_seconds=_AGAIN_SECONDS)
        return False
    return True
