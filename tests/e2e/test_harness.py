"""Harnesses side by side in one brain, chosen by the agent's metadata, over the official SDK."""

from __future__ import annotations

import uuid

from anthropic import Anthropic

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import MODEL, TOOLSET, run_turn, stamped
from tests.e2e.stack import Stack


def _types(client: Anthropic, harness: str) -> list[str]:
    agent = client.beta.agents.create(
        name="clerk", model=MODEL, tools=[TOOLSET], metadata={"drover.harness": harness}
    )
    environment = client.beta.environments.create(name=f"desk-{uuid.uuid4().hex}")
    session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    return [event.type for event in stamped(run_turn(client, session.id, "work"))]


def test_agents_choose_their_harness_and_the_logs_are_alike(stack: Stack) -> None:
    replies = tools(ToolUse("bash", {"command": "true"})), text("done")
    stack.model.script(*replies, *replies)
    with stack.client() as client:
        assert _types(client, "standard") == _types(client, "minimal")
    standard, _, minimal, _ = (request.raw for request in stack.model.requests)
    assert b"cache_control" in standard
    assert b'"thinking":{"type":"adaptive"}' in standard
    assert b"cache_control" not in minimal
    assert b"thinking" not in minimal


def test_an_agent_whose_harness_is_missing_is_told_which_there_are(stack: Stack) -> None:
    with stack.client() as client:
        types = _types(client, "dreamy")
    assert types[-4:] == [
        "session.error",
        "session.thread_status_idle",
        "session.usage",
        "session.status_idle",
    ]
    assert stack.model.requests == []
