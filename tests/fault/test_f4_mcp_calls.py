"""F4 for MCP: whoever dies while a server is at a call, nothing is called a second time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import send
from tests.e2e.mcp_stack import McpStack, served


@pytest.fixture
def client(mcp: McpStack) -> Iterator[anthropic.Anthropic]:
    with mcp.stack.client(max_retries=12) as client:
        yield client


def results(log: list[Any]) -> list[Any]:
    return [event for event in log if event.type == "agent.mcp_tool_result"]


@pytest.mark.parametrize("service", ["hands", "vault_proxy"])
def test_a_call_whose_service_is_killed_is_of_unknown_outcome_and_never_run_twice(
    mcp: McpStack, client: anthropic.Anthropic, service: str
) -> None:
    mcp.stack.model.script(tools(ToolUse("hang", {})), text("I look first"))
    session = mcp.session(client, served("double", mcp.server.url()))
    send(client, session.id, "go")
    mcp.stack.wait_for(lambda: mcp.server.runs("hang") == 1, "the call")
    mcp.stack.kill(service)
    mcp.stack.wait_ready()
    log = mcp.stack.until_idle(client, session.id)
    [result] = results(log)
    assert result.is_error
    assert "outcome of this call is unknown" in result.content[0].text
    assert log[-1].stop_reason.type == "end_turn"
    assert mcp.server.runs("hang") == 1
    mcp.stack.model.script(tools(ToolUse("echo", {"text": "back"})), text("it is back"))
    send(client, session.id, "go on")
    log = mcp.stack.until_idle(client, session.id, answers=2)
    assert results(log)[-1].content[0].text == "back"


def test_a_brain_that_is_killed_leaves_the_call_to_the_next_which_waits_for_its_answer(
    mcp: McpStack, client: anthropic.Anthropic
) -> None:
    mcp.stack.model.script(tools(ToolUse("slow", {"seconds": 3})), text("done"))
    session = mcp.session(client, served("double", mcp.server.url()))
    send(client, session.id, "go")
    mcp.stack.wait_for(lambda: mcp.server.runs("slow") == 1, "the call")
    mcp.stack.kill(mcp.stack.holder(session.id))
    log = mcp.stack.until_idle(client, session.id)
    [result] = results(log)
    assert not result.is_error
    assert mcp.server.runs("slow") == 1


def test_a_line_that_breaks_in_a_call_leaves_its_outcome_unknown(
    mcp: McpStack, client: anthropic.Anthropic
) -> None:
    mcp.stack.model.script(tools(ToolUse("hang", {})), text("I look first"))
    session = mcp.session(client, served("double", mcp.url))
    send(client, session.id, "go")
    mcp.stack.wait_for(lambda: mcp.server.runs("hang") == 1, "the call")
    mcp.line.refuse()
    mcp.line.cut()
    try:
        log = mcp.stack.until_idle(client, session.id)
    finally:
        mcp.line.admit()
    [result] = results(log)
    assert "outcome of this call is unknown" in result.content[0].text
    assert mcp.server.runs("hang") == 1
