"""Calls of MCP servers' tools, and lists of what they offer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import (
    VERDICT_COMPLETED,
    ExecuteResponse,
    McpServerOutcome,
)
from services.hands.domain import execution, remote
from services.hands.under_way import Stopped, unless_stopped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.clock import Clock
    from chassis.secret import Secret
    from drover.event.v1.mcp_tool_pb2 import McpTool
    from drover.vault.v1.credential_proxy_service_pb2 import CallResponse
    from services.hands.domain.remote import McpCall
    from services.hands.remote.granted import RemoteGrants
    from services.hands.remote.spilling import Spilling
    from services.hands.under_way import Execution

_UNKNOWN: Final = (
    "The connection broke after the call was sent to the MCP server {server}, so whether and how "
    "far it took effect is unknown. It was not sent again."
)
_LATE: Final = (
    "The MCP server {server} did not answer within {seconds:.0f} s, so whether and how far the "
    "call took effect is unknown. It was not sent again."
)
_STOPPED: Final = "The call was cancelled after it was sent to the MCP server: it may have run."
_NOT_SENT: Final = "The MCP server {server} could not be used, and nothing was run: {why}"

_log = structlog.get_logger("hands.mcp")


class Proxy(Protocol):
    """The vault proxy, as far as MCP goes. `services/hands/clients/mcp.py` says what is raised."""

    async def list_tools(self, grant: Secret, server: str) -> Sequence[McpTool]:
        """What a server offers."""
        ...

    async def call(self, grant: Secret, call_id: str, call: McpCall) -> CallResponse:
        """Has a tool called once."""
        ...


class McpTools:
    """The tools of the sessions' MCP servers."""

    def __init__(
        self, proxy: Proxy, grants: RemoteGrants, spilling: Spilling, clock: Clock
    ) -> None:
        self._proxy = proxy
        self._grants = grants
        self._spilling = spilling
        self._clock = clock

    async def list_tools(self, session_id: str, servers: Sequence[str]) -> list[McpServerOutcome]:
        """What each server offers, or why it could not be asked."""
        return await asyncio.gather(*(self._list(session_id, server) for server in servers))

    async def run(self, session_id: str, under_way: Execution, call: McpCall) -> ExecuteResponse:
        """Sends a call on, once. Raises `Stopped` and `DroverError` where nothing was sent."""
        begun = self._clock.monotonic()
        try:
            answer = await unless_stopped(
                under_way, self._send(session_id, under_way.call_id, call)
            )
        except Stopped:
            return execution.abandoned(_STOPPED)
        except DroverError as error:
            return self._failed(call, error)
        result = ExecuteResponse(
            content=answer.content, is_error=answer.is_error, verdict=VERDICT_COMPLETED
        )
        result.duration.FromTimedelta(timedelta(seconds=self._clock.monotonic() - begun))
        await self._spilling.shorten(under_way, result, spills=call.spills)
        return result

    async def _send(self, session_id: str, call_id: str, call: McpCall) -> CallResponse:
        return await self._grants.use(
            session_id, lambda grant: self._proxy.call(grant, call_id, call)
        )

    def _failed(self, call: McpCall, error: DroverError) -> ExecuteResponse:
        code = error.metadata.get("error_code")
        _log.warning("mcp_call_failed", server=call.server, reason=error.reason, code=code)
        if code == remote.OUTCOME_UNKNOWN:
            late = error.reason is Reason.DEADLINE_EXCEEDED
            text = _LATE if late else _UNKNOWN
            said = text.format(server=call.server, seconds=remote.CALL_SECONDS)
            return execution.unknown(said)
        if code not in {remote.CONNECTION_FAILED, remote.AUTHENTICATION_FAILED}:
            raise error
        result = execution.not_run(_NOT_SENT.format(server=call.server, why=error.message))
        result.errors.append(remote.failure(call.server, error))
        return result

    async def _list(self, session_id: str, server: str) -> McpServerOutcome:
        outcome = McpServerOutcome(mcp_server_name=server)
        try:
            async with asyncio.timeout(remote.LIST_SECONDS):
                tools = await self._grants.use(
                    session_id, lambda grant: self._proxy.list_tools(grant, server)
                )
                outcome.tools.extend(tools)
        except TimeoutError:
            outcome.error.CopyFrom(remote.late(server))
        except DroverError as error:
            _log.info("tools_not_listed", server=server, reason=error.reason)
            outcome.error.CopyFrom(remote.failure(server, error))
        return outcome
