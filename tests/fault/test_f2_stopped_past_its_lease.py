"""F2: a brain that is stopped past its lease (SIGSTOP) and goes on (SIGCONT) appends nothing."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from anthropic import Anthropic

from chassis.errors import Reason
from chassis.grpc.status import from_rpc_error
from drover.session.v1 import session_service_pb2
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from tests.doubles.messages_api import Gate, ToolUse, says, text, tools
from tests.doubles.session_events import said
from tests.e2e.driving import history, new_session, run_turn, send, texts
from tests.e2e.stack import Stack

_TAKEN_OVER = 60.0
_COMMAND = "echo ran >> marks; touch begun; while [ ! -e go ]; do sleep 0.05; done; wc -l < marks"


def held_by(
    stack: Stack, client: Anthropic, phase: str, holder: str | None
) -> tuple[str, str, Gate]:
    """A session in the midst of a model request or of a tool call, that `holder` is at work on."""
    for number in range(8):
        session, gate, words = new_session(client).id, Gate(), f"{phase} {number}."
        if phase == "model":
            stale = text("stale").stall(gate, after="content_block_start")
            stack.model.on(says(words), stale, text("fresh"))
        else:
            stack.model.on(says(words), tools(ToolUse("bash", {"command": _COMMAND})))
        send(client, session, words)
        if phase == "model":
            gate.wait_reached()
        else:
            stack.wait_for((stack.workspace(session) / "begun").exists, "the command to begin")
        found = stack.holder(session)
        if holder in (found, None):
            return session, found, gate
        gate.release()
        if phase == "tool":
            (stack.workspace(session) / "go").touch()
    pytest.fail(f"no session is held by {holder}")


def stopped(stack: Stack, brain: str, session: str) -> bool:
    """Whether the brain has logged that it stopped its work because it had lost the lease."""
    lines = (stack.data / "logs" / f"{brain}.log").read_text().splitlines()
    return any(
        line["event"] == "work_stopped"
        and line["session_id"] == session
        and line["reason"] == Reason.LEASE_LOST
        for line in map(json.loads, (line for line in lines if line.startswith("{")))
    )


def test_brain_that_goes_on_past_its_lease_is_refused_and_stops(own_stack: Stack) -> None:
    stack = own_stack
    stack.model.default(lambda _: text("went on"))
    with stack.client() as client:
        asking, brain, gate = held_by(stack, client, "model", None)
        working, _, _ = held_by(stack, client, "tool", brain)
        stack.pause(brain)
        try:
            gate.release()  # the stale answer waits for the brain
            logs = {asking: stack.until_idle(client, asking, deadline=_TAKEN_OVER)}
            stack.wait_for(lambda: stack.holder(working) != brain, "another brain", _TAKEN_OVER)
            (stack.workspace(working) / "go").touch()
            logs[working] = stack.until_idle(client, working, deadline=_TAKEN_OVER)
        finally:
            stack.resume(brain)
        for session, log in logs.items():
            stack.wait_for(lambda one=session: stopped(stack, brain, one), "the brain to stop")
            assert history(client, session) == log
        assert texts(logs[asking], "agent.message") == ["fresh"]
        ends = [e.is_error for e in logs[asking] if e.type == "span.model_request_end"]
        assert [bool(end) for end in ends] == [True, False]
        [result] = [event for event in logs[working] if event.type == "agent.tool_result"]
        assert (result.content[0].text.strip(), bool(result.is_error)) == ("1", False)
        # It is a brain like any other again.
        run_turn(client, asking, "again")
        refused_by_its_generation(stack, asking, history(client, asking))


def refused_by_its_generation(stack: Stack, session: str, log: list[Any]) -> None:
    """An append under the generation of the brain that was stopped changes nothing."""
    with stack.channel("session") as channel:
        request = session_service_pb2.EmitEventsRequest(
            session_id=session, events=[said("late")], generation=1
        )
        metadata = [
            ("authorization", f"Bearer {stack.token}"),
            ("x-drover-workspace-id", "wrkspc_default"),
        ]
        with pytest.raises(grpc.RpcError) as refused:
            SessionServiceStub(channel).EmitEvents(request, timeout=60, metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert from_rpc_error(refused.value).reason is Reason.LEASE_LOST
    with stack.client() as client:
        assert history(client, session) == log
