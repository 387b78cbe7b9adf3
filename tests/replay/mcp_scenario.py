"""A golden log of a session with MCP servers: `scenarios` for a stack that reaches one."""

from __future__ import annotations

from typing import Any, Final

from anthropic import Anthropic

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import run_turn, send
from tests.e2e.mcp_stack import ALLOW, McpStack, served

ASKS: Final = {"name": "count", "permission_policy": {"type": "always_ask"}}
CLOSED: Final = {"name": "hang", "enabled": False}


def mcp_servers(mcp: McpStack, client: Anthropic) -> str:
    """Two servers with the same tools: listed, called, asked about, changed, down, interrupted."""
    mcp.stack.model.script(
        tools(
            ToolUse("mcp__steady__echo", {"text": "hello"}),
            ToolUse("mcp__steady__count", {}),
            ToolUse("mcp__steady__hang", {}),
            ToolUse("mcp__steady__fail", {}),
        ),
        text("done"),
    )
    steady = served("steady", mcp.server.url(), ALLOW, ASKS, CLOSED)
    session = mcp.session(client, steady, served("shaky", mcp.url))
    [asked] = run_turn(client, session.id, "work")[-1].stop_reason.event_ids
    _confirm(client, session.id, asked, "allow")
    mcp.stack.until_idle(client, session.id)

    mcp.server.offer(descriptions={"echo": "Says it quite differently."})
    mcp.line.refuse()
    mcp.line.cut()
    mcp.stack.model.script(
        tools(ToolUse("mcp__steady__echo", {"text": "again"}), ToolUse("mcp__shaky__echo", {})),
        text("as you wish"),
    )
    [asked] = run_turn(client, session.id, "once more")[-1].stop_reason.event_ids
    _confirm(client, session.id, asked, "deny", deny_message="not as it is now")
    mcp.stack.until_idle(client, session.id, answers=2)

    mcp.line.admit()
    mcp.stack.model.script(tools(ToolUse("mcp__shaky__slow", {"seconds": 600})))
    send(client, session.id, "and wait")
    mcp.stack.wait_for(lambda: mcp.server.runs("slow") == 1, "the call")
    interrupt: Any = {"type": "user.interrupt"}
    client.beta.sessions.events.send(session.id, events=[interrupt])
    mcp.stack.until_idle(client, session.id, answers=2)
    return str(session.id)


def _confirm(client: Anthropic, session_id: str, call: str, result: str, **more: str) -> None:
    event: Any = {"type": "user.tool_confirmation", "tool_use_id": call, "result": result, **more}
    client.beta.sessions.events.send(session_id, events=[event])
