"""Agents with MCP servers: a real server, the official client, and the whole stack between them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.doubles.mcp_server import PNG
from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import history, new_session, run_turn
from tests.e2e.mcp_stack import ALLOW, McpStack, served

ASK: dict[str, Any] = {}


@pytest.fixture
def client(mcp: McpStack) -> Iterator[anthropic.Anthropic]:
    with mcp.stack.client() as client:
        yield client


def of(log: list[Any], kind: str) -> list[Any]:
    return [event for event in log if event.type == kind]


def said(result: Any) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


def test_an_allowed_tool_is_called_and_its_answer_reaches_the_model(
    mcp: McpStack, client: anthropic.Anthropic
) -> None:
    mcp.stack.model.script(tools(ToolUse("echo", {"text": "hello"})), text("it said hello"))
    session = mcp.session(client, served("double", mcp.server.url()))
    assert session.agent.mcp_servers[0].url == mcp.server.url()
    run_turn(client, session.id, "say hello")
    log = history(client, session.id)
    [use] = of(log, "agent.mcp_tool_use")
    assert (use.mcp_server_name, use.name, use.input) == ("double", "echo", {"text": "hello"})
    assert use.evaluated_permission == "allow"
    [result] = of(log, "agent.mcp_tool_result")
    assert (result.mcp_tool_use_id, said(result), result.is_error) == (use.id, "hello", False)
    assert not of(log, "session.error")
    assert {"echo", "add", "bash"} <= set(mcp.offered(0))
    # No sandbox was made for it, and nothing of the list is told to clients.
    assert session.id not in mcp.stack.sandboxes()
    [start, _] = of(log, "span.model_request_start")
    assert set(start.to_dict()) == {"id", "type", "processed_at"}


def test_tools_ask_by_default_and_run_once_a_person_has_allowed_them(
    mcp: McpStack, client: anthropic.Anthropic
) -> None:
    mcp.stack.model.script(
        tools(ToolUse("count", {}), ToolUse("echo", {"text": "no"})), text("done")
    )
    session = mcp.session(client, served("double", mcp.server.url(), ASK))
    run_turn(client, session.id, "go")
    log = history(client, session.id)
    count, echo = of(log, "agent.mcp_tool_use")
    assert (count.evaluated_permission, count.evaluation.type) == ("ask", "always_ask")
    assert log[-1].stop_reason.event_ids == [count.id, echo.id]
    assert mcp.server.runs("count") == 0
    client.beta.sessions.events.send(
        session.id,
        events=[
            {"type": "user.tool_confirmation", "tool_use_id": count.id, "result": "allow"},
            {
                "type": "user.tool_confirmation",
                "tool_use_id": echo.id,
                "result": "deny",
                "deny_message": "Keep quiet.",
            },
        ],
    )
    log = mcp.stack.until_idle(client, session.id)
    results = {one.mcp_tool_use_id: one for one in of(log, "agent.mcp_tool_result")}
    assert not results[count.id].is_error
    assert said(results[echo.id]) == "Permission to use echo has been denied. Keep quiet."
    assert (mcp.server.runs("count"), mcp.server.runs("echo")) == (1, 0)


def test_pictures_come_through_to_clients_and_to_the_model(
    mcp: McpStack, client: anthropic.Anthropic
) -> None:
    mcp.stack.model.script(tools(ToolUse("image", {})), text("a dot"))
    session = mcp.session(client, served("double", mcp.server.url()))
    run_turn(client, session.id, "draw")
    [result] = of(history(client, session.id), "agent.mcp_tool_result")
    [picture] = [block for block in result.content if block.type == "image"]
    assert base64.b64decode(picture.source.data) == PNG
    shown = mcp.stack.model.requests[-1].body["messages"][-1]["content"][0]["content"]
    assert "image" in [block["type"] for block in shown]


def test_a_long_answer_is_in_a_file_that_the_sandbox_can_read(
    mcp: McpStack, client: anthropic.Anthropic
) -> None:
    mcp.stack.model.script(tools(ToolUse("big", {"bytes": 150_000})), text("a lot"))
    session = mcp.session(client, served("double", mcp.server.url()))
    run_turn(client, session.id, "tell all")
    [result] = of(history(client, session.id), "agent.mcp_tool_result")
    [use] = of(history(client, session.id), "agent.mcp_tool_use")
    path = f"/mnt/session/tool_outputs/{use.id}.txt"
    assert path in said(result)
    assert len(said(result)) < 11_000
    mcp.stack.model.script(tools(ToolUse("bash", {"command": f"wc -c <{path}"})), text("ok"))
    run_turn(client, session.id, "count it")
    assert said(of(history(client, session.id), "agent.tool_result")[-1]).strip() == "150000"


def test_a_server_that_is_down_is_told_of_and_asked_again_at_the_next_turn(
    mcp: McpStack, client: anthropic.Anthropic
) -> None:
    mcp.stack.model.script(text("without it"), text("with it"))
    session = mcp.session(client, served("double", mcp.url))
    mcp.line.refuse()
    run_turn(client, session.id, "go")
    log = history(client, session.id)
    [error] = of(log, "session.error")
    assert error.error.type == "mcp_connection_failed_error"
    assert error.error.mcp_server_name == "double"
    assert error.error.retry_status.type == "retrying"
    assert of(log, "agent.message")
    assert "echo" not in mcp.offered()
    mcp.line.admit()
    run_turn(client, session.id, "go on")
    assert len(of(history(client, session.id), "session.error")) == 1
    assert "echo" in mcp.offered()


def test_a_server_that_wants_a_credential_is_told_of_and_works_with_a_vault(
    mcp: McpStack, client: anthropic.Anthropic
) -> None:
    url = mcp.server.url("/private/mcp")
    mcp.server.allow("sk-for-mcp")
    mcp.stack.model.script(text("without it"))
    session = mcp.session(client, served("double", url))
    run_turn(client, session.id, "go")
    [error] = of(history(client, session.id), "session.error")
    assert error.error.type == "mcp_authentication_failed_error"
    vault = client.beta.vaults.create(display_name="Ada")
    client.beta.vaults.credentials.create(
        vault.id,
        auth={"type": "static_bearer", "mcp_server_url": url, "token": "sk-for-mcp"},
    )
    mcp.stack.model.script(tools(ToolUse("echo", {"text": "in"})), text("with it"))
    session = mcp.session(client, served("double", url), vault_ids=[vault.id])
    run_turn(client, session.id, "go")
    log = history(client, session.id)
    assert not of(log, "session.error")
    assert said(of(log, "agent.mcp_tool_result")[0]) == "in"
    assert "sk-for-mcp" not in "".join(event.to_json() for event in log)


def test_the_servers_of_a_session_can_be_changed_while_it_is_idle(
    mcp: McpStack, client: anthropic.Anthropic
) -> None:
    mcp.stack.model.script(text("none"), text("one"))
    session = new_session(client)
    run_turn(client, session.id, "go")
    added = served("double", mcp.server.url(), ALLOW)
    changed = client.beta.sessions.update(
        session.id, agent={"tools": [added["toolset"]], "mcp_servers": [added["server"]]}
    )
    assert [one.name for one in changed.agent.mcp_servers] == ["double"]
    run_turn(client, session.id, "go on")
    assert "echo" in mcp.offered()
    assert "bash" not in mcp.offered()


def test_a_limited_environment_has_to_let_the_servers_through(client: anthropic.Anthropic) -> None:
    one = served("double", "https://mcp.example.com/mcp")
    agent = client.beta.agents.create(
        name="clerk", model="claude-opus-5-5", tools=[one["toolset"]], mcp_servers=[one["server"]]
    )
    limited: dict[str, Any] = {"type": "limited", "allowed_hosts": ["example.com"]}

    def desk(name: str, **networking: Any) -> str:
        config: Any = {"type": "cloud", "networking": {**limited, **networking}}
        return client.beta.environments.create(name=name, config=config).id

    with pytest.raises(anthropic.BadRequestError, match="allow_mcp_servers"):
        client.beta.sessions.create(agent=agent.id, environment_id=desk("closed"))
    open_one = desk("open", allow_mcp_servers=True)
    assert client.beta.sessions.create(agent=agent.id, environment_id=open_one).id
