"""Calls that no sandbox runs, by who runs them instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from services.hands.domain import remote, web
from services.hands.domain.remote import McpCall, McpServer
from services.hands.domain.web import WebCall

if TYPE_CHECKING:
    from drover.agent.v1.tool_pb2 import WebSettings
    from drover.hands.v1.hands_service_pb2 import ExecuteResponse
    from services.hands.remote.granted import RemoteGrants
    from services.hands.remote.mcp import McpTools
    from services.hands.remote.web import WebPages
    from services.hands.under_way import Execution

    Destination = McpServer | WebSettings
    OutsideCall = McpCall | WebCall

OUTSIDE: Final = (McpCall, WebCall)


def parse_outside(destination: Destination, tool: str, text: str) -> OutsideCall:
    """The call of `tool` there. Raises `InputRefused`."""
    if isinstance(destination, McpServer):
        return remote.parse(destination, tool, text)
    return web.parse(tool, text, destination)


class Outside:
    """MCP servers and the web, through the vault proxy."""

    def __init__(self, mcp: McpTools, pages: WebPages, grants: RemoteGrants) -> None:
        self.mcp = mcp
        self._pages = pages
        self._grants = grants

    async def run(
        self, session_id: str, under_way: Execution, call: OutsideCall
    ) -> ExecuteResponse:
        """Has a call run. Raises `Stopped` and `DroverError` where nothing has."""
        if isinstance(call, McpCall):
            return await self.mcp.run(session_id, under_way, call)
        return await self._pages.run(session_id, under_way, call)

    async def end(self, session_id: str) -> None:
        """The session has ended: its grants open nothing from now on."""
        await self._grants.end(session_id)

    def prune(self) -> None:
        """Forgets the grants of sessions that have not used theirs for long."""
        self._grants.prune()
