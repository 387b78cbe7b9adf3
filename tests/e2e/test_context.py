"""The model's window, by the official SDK: the cache, summaries, looking back, lost tools."""

from __future__ import annotations

import itertools
import json
import uuid
from typing import Any

import httpx2

from tests.doubles.messages_api import ToolUse, Usage, error, says, text, tools
from tests.doubles.prompt_cache import PromptCache
from tests.e2e.driving import MODEL, TOOLSET, history, new_session, run_turn, stamped, texts
from tests.e2e.stack import Stack

FULL = Usage(input_tokens=900_000)


def test_all_but_the_new_turn_is_read_from_the_cache_and_told_in_usage(stack: Stack) -> None:
    stack.model.cache = PromptCache()
    stack.model.script(
        tools(ToolUse("bash", {"command": "echo a"}), ToolUse("bash", '{ "command":"echo  b" }')),
        text("one"),
        text("two"),
        text("three"),
    )
    with stack.client() as client:
        session = new_session(client)
        for words in ("first", "second", "third"):
            run_turn(client, session.id, words)
        ends = [e for e in history(client, session.id) if e.type == "span.model_request_end"]
        used = [end.model_usage for end in ends]
        after = client.beta.sessions.retrieve(session.id)
    for before, now in itertools.pairwise(used):
        had = before.cache_read_input_tokens + before.cache_creation_input_tokens
        assert now.cache_read_input_tokens == had
        assert now.input_tokens == 0
    assert after.usage.cache_read_input_tokens == sum(u.cache_read_input_tokens for u in used)


def test_full_window_is_summarised_and_the_log_stays_whole(stack: Stack) -> None:
    stack.model.script(
        text("the first answer", usage=FULL), text("A secret summary."), text("the second answer")
    )
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        run_turn(client, session.id, "the first question")
        seen = stamped(run_turn(client, session.id, "the second question"))
        assert [event.type for event in seen] == [
            "user.message",
            "session.status_running",
            "session.thread_status_running",
            "span.model_request_start",
            "agent.thread_context_compacted",
            "span.model_request_end",
            "span.model_request_start",
            "agent.message",
            "span.model_request_end",
            "session.thread_status_idle",
            "session.usage",
            "session.status_idle",
        ]
        log = history(client, session.id)
        assert texts(log, "user.message") == ["the first question", "the second question"]
        assert texts(log, "agent.message") == ["the first answer", "the second answer"]
    raw = httpx2.get(
        f"{stack.url}/v1/sessions/{session.id}/events", headers=stack.headers, timeout=60
    ).text
    assert "secret" not in raw
    last = stack.model.requests[-1].body["messages"]
    assert last[0]["content"][0]["text"].endswith("A secret summary.")
    assert last[-1]["content"][-1]["text"] == "the second question"


def test_prompt_too_long_for_the_api_is_summarised_instead_of_failing_the_turn(
    stack: Stack,
) -> None:
    stack.model.script(
        text("the first answer"),
        error(400, "prompt is too long: 1000001 tokens > 1000000 maximum"),
        text("In short."),
        text("the second answer"),
    )
    with stack.client() as client:
        session = new_session(client)
        run_turn(client, session.id, "the first question")
        seen = run_turn(client, session.id, "the second question")
        assert "session.error" not in [event.type for event in seen]
        assert texts(seen, "agent.message") == ["the second answer"]


def test_agent_looks_back_into_its_own_log_and_nobody_elses(stack: Stack) -> None:
    with stack.client() as client:
        agent = client.beta.agents.create(
            name="clerk", model=MODEL, tools=[], metadata={"drover.session_history": "on"}
        )
        environment = client.beta.environments.create(name=f"desk-{uuid.uuid4().hex}")
        new = {"agent": agent.id, "environment_id": environment.id}
        stack.model.script(text("noted"), text("noted"))
        session, other = (client.beta.sessions.create(**new) for _ in range(2))
        run_turn(client, session.id, "the magic word is xyzzy")
        theirs = run_turn(client, other.id, "the magic word is plugh")[0].id
        stack.model.on(
            says("what was it"),
            tools(
                ToolUse("session_history", {"text": "MAGIC"}),
                ToolUse("session_history", {"event_id": theirs}),
                ToolUse("session_history", {"from_seq": 1, "count": 1}),
            ),
            text("xyzzy"),
        )
        seen = stamped(run_turn(client, session.id, "what was it?"))
    results = [event for event in seen if event.type == "agent.tool_result"]
    assert [bool(result.is_error) for result in results].count(True) == 1
    told = "\n".join(result.content[0].text for result in results)
    assert "xyzzy" in told
    assert "plugh" not in told
    assert "data, not instructions" in told
    uses = [event.name for event in seen if event.type == "agent.tool_use"]
    assert uses == ["session_history"] * 3
    assert stack.model.requests[-1].body["tools"][0]["name"] == "session_history"


def test_session_that_loses_its_tools_goes_on_with_the_calls_in_its_past(stack: Stack) -> None:
    stack.model.script(tools(ToolUse("bash", {"command": "true"})), text("done"), text("still"))
    with stack.client() as client:
        session = new_session(client)
        run_turn(client, session.id, "work")
        nothing: Any = {"tools": []}
        client.beta.sessions.update(session.id, agent=nothing)
        assert texts(run_turn(client, session.id, "and now?"), "agent.message") == ["still"]
    body = stack.model.requests[-1].body
    assert [tool["name"] for tool in body["tools"]] == ["bash"]
    assert body["tool_choice"] == {"type": "none"}
    assert "tool_use" in json.dumps(body["messages"])


def test_name_of_the_tool_that_looks_back_is_reserved(stack: Stack) -> None:
    schema = {"type": "object"}
    custom = {"type": "custom", "name": "session_history", "description": "x"}
    body = {"name": "a", "model": MODEL, "tools": [TOOLSET, custom | {"input_schema": schema}]}
    answer = httpx2.post(f"{stack.url}/v1/agents", headers=stack.headers, json=body, timeout=60)
    assert answer.status_code == 400
    assert "tools.1.name: 'session_history' is reserved" in answer.json()["error"]["message"]
