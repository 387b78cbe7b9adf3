"""kill -9 of a brain in the middle of a tool call: the turn finishes, the command ran once."""

from __future__ import annotations

import json
import time

from tests.doubles.messages_api import Gate, ToolUse, text, tools
from tests.doubles.soak import share
from tests.e2e.driving import new_session, run_turn, send, texts
from tests.e2e.stack import Stack

COUNTED = (
    "echo ran >> /workspace/count; touch /workspace/begun; "
    "while [ ! -e /workspace/go ]; do sleep 0.05; done; wc -l < /workspace/count"
)


def test_brain_killed_in_a_tool_call_is_replaced_and_the_command_runs_once(
    own_stack: Stack,
) -> None:
    stack = own_stack
    stack.model.script(tools(ToolUse("bash", {"command": COUNTED})), text("finished"))
    with stack.client() as client:
        session = new_session(client)
        send(client, session.id, "work")
        workspace = stack.workspace(session.id)
        stack.wait_for((workspace / "begun").exists, "the command to begin")
        before = stack.pids("brain-1", "brain-2")
        stack.kill("brain-1")
        stack.kill("brain-2")
        stack.wait_for(
            lambda: stack.pids("brain-1", "brain-2").isdisjoint(before), "both brains to be back"
        )
        (workspace / "go").touch()
        log = stack.until_idle(client, session.id)
    results = [event for event in log if event.type == "agent.tool_result"]
    assert len(results) == 1
    assert results[0].content[0].text.strip() == "1"
    assert not results[0].is_error
    assert texts(log, "agent.message") == ["finished"]
    assert log[-1].stop_reason.type == "end_turn"


def test_brain_killed_in_a_model_request_is_replaced_and_the_request_closed(
    own_stack: Stack,
) -> None:
    stack = own_stack
    gate = Gate()
    stack.model.script(
        text("never finished").stall(gate, after="content_block_start"), text("by the next")
    )
    with stack.client() as client:
        session = new_session(client)
        send(client, session.id, "work")
        gate.wait_reached()
        stack.kill("brain-1")
        stack.kill("brain-2")
        gate.release()
        log = stack.until_idle(client, session.id)
    ends = [event for event in log if event.type == "span.model_request_end"]
    assert [bool(end.is_error) for end in ends] == [True, False]
    assert texts(log, "agent.message") == ["by the next"]
    assert [event.type for event in log].count("session.status_running") == 1


def test_messages_acknowledged_while_no_brain_lives_are_processed(own_stack: Stack) -> None:
    stack = own_stack
    stack.model.script(*[text(f"answer {number}") for number in range(4)])
    with stack.client() as client:
        session = new_session(client)
        run_turn(client, session.id, "warm up")
        stack.kill("brain-1")
        stack.kill("brain-2")
        sent = [event.id for event in send(client, session.id, "a", "b", "c")]
        log = stack.until_idle(client, session.id, answers=4)
    assert [e.id for e in history_of(log, "user.message")][1:] == sent
    assert texts(log, "agent.message") == [f"answer {number}" for number in range(4)]


def history_of(log: list, kind: str) -> list:
    """Events of one type."""
    return [event for event in log if event.type == kind]


def test_brain_killed_after_the_session_service_is_followed_long_before_its_lease_ends(
    own_stack: Stack,
) -> None:
    """Nobody waits any more for the end of the call that woke it: its lease's stream tells."""
    stack = own_stack
    gate = Gate()
    stack.model.script(
        text("never finished").stall(gate, after="content_block_start"), text("by the next")
    )
    with stack.client(max_retries=8) as client:
        session = new_session(client)
        send(client, session.id, "work")
        gate.wait_reached()
        brain = stack.holder(session.id)
        stack.kill("session")
        stack.wait_for(
            lambda: told(stack, session.id, "lease_opened") == 2, "the lease to be taken up again"
        )
        stack.kill(brain)
        killed = time.monotonic()
        log = stack.until_idle(client, session.id)
        gate.release()
    assert texts(log, "agent.message") == ["by the next"]
    assert told(stack, session.id, "lease_expired") == 0
    # A quarter of a second where nothing else goes on; its lease lives for ten.
    assert time.monotonic() - killed < (5 if share(1) >= 1 else 30)


def told(stack: Stack, session_id: str, event: str) -> int:
    """How often the session service says so of the session."""
    lines = (stack.data / "logs" / "session.log").read_text().splitlines()
    said = [json.loads(line) for line in lines if line.startswith("{")]
    return sum(line["event"] == event and line["session_id"] == session_id for line in said)
