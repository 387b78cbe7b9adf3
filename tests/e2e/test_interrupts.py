"""`user.interrupt`, by the official SDK: what runs is dead at once (EVENTS §9)."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from anthropic import Anthropic, BadRequestError

from tests.doubles import soak
from tests.doubles.messages_api import Gate, ToolUse, text, tools
from tests.e2e.driving import history, new_session, run_turn, send, texts, user_message
from tests.e2e.stack import Stack

DESK: dict[str, Any] = {
    "type": "custom",
    "name": "ask_desk",
    "description": "Asks the desk.",
    "input_schema": {"type": "object", "properties": {}},
}
INTERRUPTED = "Tool execution was interrupted before completion. Please retry."
DEAD_SECONDS = 1.0 if soak.share(1) >= 1 else 30.0
"""More where other tests take the processor as well."""


def interrupt(client: Anthropic, session_id: str, *more: Any, **fields: str) -> Any:
    events: list[Any] = [{"type": "user.interrupt", **fields}, *more]
    [sent, *_] = client.beta.sessions.events.send(session_id, events=events).data or []
    return sent


def test_command_and_all_its_processes_are_dead_within_a_second(stack: Stack) -> None:
    mark = f"3600.{uuid.uuid4().int % 10**12}"
    command = f"(sleep {mark} & sleep {mark}) & setsid sleep {mark} & touch begun; sleep {mark}"
    stack.model.script(tools(ToolUse("bash", {"command": command})))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        send(client, session.id, "work")
        stack.wait_for((stack.workspace(session.id) / "begun").exists, "the command to begin")
        stack.wait_for(lambda: len(stack.host_processes(f"sleep {mark}")) >= 4, "its processes")
        since = time.monotonic()
        assert interrupt(client, session.id).processed_at is None
        stack.wait_for(lambda: not stack.host_processes(f"sleep {mark}"), "their death")
        took = time.monotonic() - since
        log = stack.until_idle(client, session.id, answers=0)
    assert took < DEAD_SECONDS
    [result] = [event for event in log if event.type == "agent.tool_result"]
    assert result.is_error
    assert result.content[0].text == INTERRUPTED
    kinds = [event.type for event in log]
    assert kinds[-4:] == [
        "user.interrupt",
        "session.thread_status_idle",
        "session.usage",
        "session.status_idle",
    ]
    assert log[-1].stop_reason.type == "end_turn"
    assert log[-4].processed_at is not None


def test_session_goes_on_after_an_interrupt_with_its_workspace(stack: Stack) -> None:
    stack.model.script(
        tools(ToolUse("bash", {"command": "echo kept > .note; mv .note note; sleep 600"})),
        tools(ToolUse("bash", {"command": "cat note"})),
        text("kept, it says"),
    )
    with stack.client() as client:
        session = new_session(client)
        send(client, session.id, "work")
        stack.wait_for((stack.workspace(session.id) / "note").exists, "the command to begin")
        interrupt(client, session.id, user_message("what is in the note?"))
        log = stack.until_idle(client, session.id)
    results = [event for event in log if event.type == "agent.tool_result"]
    assert [result.is_error or False for result in results] == [True, False]
    assert results[1].content[0].text.splitlines()[0] == "kept"
    assert texts(log, "agent.message") == ["kept, it says"]


def test_model_is_cut_off_and_nothing_of_its_answer_is_kept(stack: Stack) -> None:
    gate = Gate()
    stack.model.script(text("never read").stall(gate, after="content_block_start"), text("better"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        send(client, session.id, "work")
        gate.wait_reached()
        interrupt(client, session.id)
        log = stack.until_idle(client, session.id, answers=0)
        assert log[-1].stop_reason.type == "end_turn"
        assert texts(log, "agent.message") == []
        stack.wait_for(lambda: stack.model.requests[0].aborted, "the request to be cut off")
        gate.release()
        assert run_turn(client, session.id, "again")[-1].stop_reason.type == "end_turn"


@pytest.mark.parametrize("scope", ["session", "primary thread"])
def test_waiting_calls_are_closed_without_asking_the_model(stack: Stack, scope: str) -> None:
    stack.model.script(tools(ToolUse("ask_desk", {})))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[DESK])
        assert run_turn(client, session.id, "ask")[-1].stop_reason.type == "requires_action"
        [thread] = client.beta.sessions.threads.list(session.id)
        named = {"session_thread_id": thread.id} if scope == "primary thread" else {}
        sent = interrupt(client, session.id, **named)
        assert sent.session_thread_id == named.get("session_thread_id")
        stack.wait_for(
            lambda: (
                history(client, session.id)[-1].stop_reason.type == "end_turn"
                if history(client, session.id)[-1].type == "session.status_idle"
                else False
            ),
            "the end of the turn",
        )
        log = history(client, session.id)
    assert len(stack.model.requests) == 1
    [result] = [event for event in log if event.type == "agent.tool_result"]
    assert result.content[0].text == INTERRUPTED
    assert [event.type for event in log].count("session.status_running") == 1


def test_idle_session_takes_an_interrupt_and_idles_again(stack: Stack) -> None:
    stack.model.script(text("hello"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        run_turn(client, session.id, "hi")
        interrupt(client, session.id)
        stack.wait_for(
            lambda: [e.type for e in history(client, session.id)].count("session.status_idle") == 2,
            "another idle event",
        )
        assert client.beta.sessions.retrieve(session.id).status == "idle"
        assert client.beta.sessions.archive(session.id).status == "terminated"
    assert len(stack.model.requests) == 1


def test_thread_that_the_session_does_not_have_is_refused_by_name(stack: Stack) -> None:
    with stack.client() as client:
        session, other = new_session(client), new_session(client)
        [foreign] = client.beta.sessions.threads.list(other.id)
        for thread_id in (foreign.id, "sthr_unknown"):
            with pytest.raises(BadRequestError, match=r"events\.0\.session_thread_id"):
                interrupt(client, session.id, session_thread_id=thread_id)
        assert history(client, session.id) == []
