"""kill -9 of each service: ready again within 10 s, and the session takes a new message (P8)."""

from __future__ import annotations

import pytest

from tests.doubles.messages_api import ToolUse, text, tools
from tests.doubles.soak import share
from tests.e2e.driving import history, new_session, run_turn, texts
from tests.e2e.stack import Stack

BACK_WITHIN = 10.0 if share(1) >= 1 else 40.0
"""Seconds, more where other tests take the processor as well."""
SERVICES = ["session", "registry", "hands", "vault_proxy", "gateway", "brain-1", "brain-2"]


@pytest.mark.parametrize("service", SERVICES)
def test_stack_is_ready_again_and_the_session_goes_on(own_stack: Stack, service: str) -> None:
    stack = own_stack
    stack.model.script(
        tools(ToolUse("bash", {"command": "echo kept > /workspace/kept"})),
        text("one"),
        tools(ToolUse("bash", {"command": "cat /workspace/kept"})),
        text("two"),
    )
    with stack.client(max_retries=0) as client:
        session = new_session(client)
        run_turn(client, session.id, "first")
        before = history(client, session.id)
        stack.kill(service)
        stack.wait_ready(BACK_WITHIN)
        run_turn(client, session.id, "second")
        log = history(client, session.id)
    assert [event.id for event in log[: len(before)]] == [event.id for event in before]
    assert texts(log, "agent.message") == ["one", "two"]
    result = [event for event in log if event.type == "agent.tool_result"][-1]
    kept, _, note = result.content[0].text.strip().partition("\n")
    assert kept == "kept"
    # A shell that went with the hands has lost what commands left in it, and says so.
    assert note.startswith("[the shell was started afresh") == (service == "hands")


def test_session_service_killed_in_a_tool_call_keeps_the_brain_at_work(own_stack: Stack) -> None:
    stack = own_stack
    command = (
        "touch /workspace/begun; while [ ! -e /workspace/go ]; do sleep 0.05; done; echo survived"
    )
    stack.model.script(tools(ToolUse("bash", {"command": command})), text("finished"))
    with stack.client() as client:
        session = new_session(client)
        client.beta.sessions.events.send(
            session.id,
            events=[{"type": "user.message", "content": [{"type": "text", "text": "go"}]}],
        )
        workspace = stack.workspace(session.id)
        stack.wait_for((workspace / "begun").exists, "the command to begin")
        stack.kill("session")
        stack.wait_ready()
        (workspace / "go").touch()
        log = stack.until_idle(client, session.id)
    results = [event for event in log if event.type == "agent.tool_result"]
    assert [result.content[0].text.strip() for result in results] == ["survived"]
    assert texts(log, "agent.message") == ["finished"]
