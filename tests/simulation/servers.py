"""An MCP server behind the vault proxy: its calls leave marks that are counted, and it may change.

It lives on when hands die, as a server elsewhere does, and takes a call to its end that nobody
waits for any more.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from drover.agent.v1.tool_pb2 import McpServer, Tool
from drover.event.v1.mcp_tool_pb2 import McpTool
from drover.vault.v1.credential_proxy_service_pb2 import CallResponse
from services.hands.domain.remote import CONNECTION_FAILED, OUTCOME_UNKNOWN
from services.hands.egress.grants import Grant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.agent.v1.tool_pb2 import PermissionPolicyType
    from services.hands.domain.remote import McpCall
    from tests.simulation.disk import Disk
    from tests.simulation.loop import Life
    from tests.simulation.sandbox import Fate

NAME: Final = "files"
TOOL: Final = "find"
SERVER: Final = McpServer(name=NAME, url="https://files.example.com/mcp")


def toolset(policy: PermissionPolicyType.ValueType) -> Tool:
    """The agent's word on the server's tools."""
    tool = Tool()
    tool.mcp_toolset.mcp_server_name = NAME
    tool.mcp_toolset.default_config.permission_policy.type = policy
    return tool


class Server:
    """The server, and the vault proxy in front of it."""

    def __init__(self, disk: Disk, life: Life, fate: Fate) -> None:
        self._disk = disk
        self._life = life
        self._fate = fate
        self._edition = 1
        self.calm = False

    async def open(self, _session_id: str, _hand_id: str) -> Grant:
        """A grant that lasts for some minutes."""
        await asyncio.sleep(self._soon())
        now = self._disk.loop.time()
        return Grant(Secret("grant"), now + 150, now + 300)

    async def revoke(self, _session_id: str) -> None:
        """Nothing to take back."""

    async def list_tools(self, _grant: Secret, _server: str) -> Sequence[McpTool]:
        """Its one tool, and perhaps another one than the last time."""
        await asyncio.sleep(self._soon())
        draw = 1.0 if self.calm else self._disk.rng.random()
        if draw < 0.1:
            raise DroverError(Reason.UNAVAILABLE, "it is down", error_code=CONNECTION_FAILED)
        if draw < 0.25:
            self._edition += 1
        return [
            McpTool(
                name=TOOL,
                description=f"Finds. Edition {self._edition}.",
                input_schema='{"type":"object"}',
            )
        ]

    async def call(self, _grant: Secret, _call_id: str, call: McpCall) -> CallResponse:
        """Leaves the mark, whether or not somebody still waits for the answer."""
        mark = json.loads(call.text)["mark"]
        draw = 1.0 if self.calm else self._disk.rng.random()
        if draw < 0.05:
            raise DroverError(Reason.UNAVAILABLE, "it is down", error_code=CONNECTION_FAILED)
        if draw < 0.1:
            raise DroverError(Reason.UNAVAILABLE, "the proxy is busy")
        before, after = self._fate.duration()
        context = self._life.context()
        self._disk.loop.call_later(before, self._act, mark, context=context)
        if draw < 0.3:
            await asyncio.sleep(before * self._disk.rng.random() * 2)
            raise DroverError(Reason.UNAVAILABLE, "the line broke", error_code=OUTCOME_UNKNOWN)
        await asyncio.sleep(before + after)
        answer = CallResponse()
        answer.content.add().text.text = f"did {mark}"
        return answer

    def _act(self, mark: str) -> None:
        self._disk.effects[mark] += 1
        self._disk.trace.note(self._life, "effect", mark)

    def _soon(self) -> float:
        return 0.2 * self._disk.rng.random() ** 3
