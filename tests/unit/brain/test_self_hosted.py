"""What a brain does in a session whose sandbox tools a worker runs."""

from __future__ import annotations

import json

import pytest

from drover.agent.v1.agent_pb2 import SessionAgent
from drover.agent.v1.tool_pb2 import AgentToolset, Tool
from drover.event.v1.event_pb2 import Event
from drover.event.v1.user_event_pb2 import (
    CONFIRMATION_RESULT_ALLOW,
    CONFIRMATION_RESULT_DENY,
    UserToolConfirmation,
    UserToolResult,
)
from drover.session.v1.lease_pb2 import InputWaiting
from services.brain.domain import decision as d
from services.brain.domain import events, response
from services.brain.domain.calls import INTERRUPTED
from services.brain.domain.context import HISTORY_KEY
from services.brain.domain.projection import correct
from services.brain.domain.state import State
from services.brain.harness.standard import SANDBOX_NOTE, WORKER_NOTE
from tests.doubles import scripted_model as model
from tests.unit.brain import logs
from tests.unit.brain.logs import HARNESS, fold


class Log:
    """A log of a self-hosted session whose model has just called these tools."""

    def __init__(self, *names: str, agent: SessionAgent | None = None) -> None:
        self.session = logs.session(*logs.every_kind_of_tool(), self_hosted=True)
        if agent is not None:
            self.session.agent.CopyFrom(agent)
        self.factory = events.EventFactory(logs.Numbered(), "sthr_1", "Worker")
        start = self.factory.request_start()
        self.events = [logs.message("Hi"), *self.factory.running(), start]
        assembler = response.ResponseAssembler(self.factory)
        calls = [model.tool(name, {}, f"toolu_{number}") for number, name in enumerate(names)]
        for raw in model.response(*calls):
            assembler.feed(raw)
        self.events += assembler.finish(start.id, self.state().permissions)
        self.calls = [call.id for call in self.state().calls.values()]

    def state(self) -> State:
        return fold(self.session, self.events)

    def add(self, *more: Event) -> None:
        self.events += more

    def work(self, call_id: str, text: str = "worked") -> None:
        self.add(worked(call_id, text))

    def confirm(self, call_id: str, *, allow: bool = True) -> None:
        verdict = CONFIRMATION_RESULT_ALLOW if allow else CONFIRMATION_RESULT_DENY
        confirmation = UserToolConfirmation(tool_use_id=call_id, result=verdict)
        self.add(Event(user_tool_confirmation=confirmation))

    def idle(self) -> None:
        reason = d.StopReason(requires_action=d.RequiresAction(event_ids=self.calls))
        usage = self.state().usage.snapshot(0.0)
        self.add(*self.factory.idle(reason, None, usage, None))

    def next(self, *, interrupt: bool = False) -> d.Decision:
        return HARNESS.decide(self.state(), InputWaiting(interrupt=interrupt), d.Mine())

    def awaits(self) -> list[str]:
        decision = self.next()
        assert isinstance(decision, d.GoIdle)
        return list(decision.reason.requires_action.event_ids)

    def shown(self) -> list[dict[str, object]]:
        """The last message of the request that comes next."""
        body = json.loads(HARNESS.request(self.state()).body)
        content: list[dict[str, object]] = body["messages"][-1]["content"]
        return content


def worked(call_id: str, text: str = "worked") -> Event:
    result = UserToolResult(tool_use_id=call_id, content=[events.text(text)])
    return Event(id=f"worked_{call_id}", user_tool_result=result)


@pytest.mark.parametrize("name", ["bash", "read", "glob", "grep"])
def test_calls_of_the_sandboxs_tools_wait_for_a_worker(name: str) -> None:
    log = Log(name, name)
    assert log.awaits() == log.calls
    log.idle()
    assert log.awaits() == log.calls


def test_what_is_not_answered_yet_is_waited_for_with_what_clients_answer() -> None:
    log = Log("bash", "ask_user", "write")
    assert log.awaits() == log.calls
    log.idle()
    log.work(log.calls[0])
    assert log.awaits() == log.calls[1:]


def test_a_workers_result_is_the_tools_result_for_the_model() -> None:
    log = Log("bash", "read")
    log.work(log.calls[1], "second")
    failed = worked(log.calls[0], "first")
    failed.user_tool_result.is_error = True
    log.add(failed)
    assert isinstance(log.next(), d.CallModel)
    first, second = log.shown()
    assert first["tool_use_id"] == "toolu_0"
    assert first["is_error"]
    assert first["content"] == [{"type": "text", "text": "first"}]
    assert second["tool_use_id"] == "toolu_1"
    assert "is_error" not in second


def test_a_call_that_was_allowed_waits_for_a_worker_then() -> None:
    log = Log("write")
    log.idle()
    log.confirm(log.calls[0])
    assert log.awaits() == log.calls
    log.work(log.calls[0])
    assert isinstance(log.next(), d.EnterRunning)


def test_a_worker_may_answer_before_the_confirmation_is_taken() -> None:
    log = Log("write")
    log.idle()
    log.work(log.calls[0], "quick")
    log.confirm(log.calls[0])
    assert isinstance(log.next(), d.EnterRunning)
    assert log.shown()[0]["content"] == [{"type": "text", "text": "quick"}]


def test_a_denied_call_is_refused_by_the_harness() -> None:
    log = Log("write")
    log.idle()
    log.confirm(log.calls[0], allow=False)
    log.add(*log.factory.running())
    decision = log.next()
    assert isinstance(decision, d.Refuse)
    assert [call.id for call in decision.calls] == log.calls


def test_a_call_of_a_disabled_tool_is_no_workers() -> None:
    log = Log("edit", "bash")
    decision = log.next()
    assert isinstance(decision, d.Refuse)
    assert [call.id for call in decision.calls] == log.calls[:1]
    assert not decision.calls[0].with_worker


def test_the_log_is_looked_into_by_the_brain_while_a_worker_is_waited_for() -> None:
    agent = logs.agent(Tool(agent_toolset=AgentToolset()))
    agent.metadata[HISTORY_KEY] = "on"
    log = Log("session_history", "bash", agent=agent)
    decision = log.next()
    assert isinstance(decision, d.RunTools)
    assert [call.id for call in decision.calls] == log.calls[:1]
    log.add(log.factory.result(log.calls[0], [events.text("found")], is_error=False))
    assert log.awaits() == log.calls[1:]


def test_an_interrupt_stops_what_a_worker_has() -> None:
    log = Log("bash", "write", "ask_user")
    log.idle()
    decision = log.next(interrupt=True)
    assert isinstance(decision, d.Interrupt)
    assert [call.id for call in decision.calls] == log.calls
    assert all(call.with_worker for call in decision.calls)
    stopped = [log.factory.stopped(call, INTERRUPTED) for call in decision.calls]
    kinds = [event.WhichOneof("payload") for event in stopped]
    assert kinds == ["user_tool_result", "user_tool_result", "user_custom_tool_result"]
    log.add(*stopped)
    decision = log.next(interrupt=True)
    assert isinstance(decision, d.GoIdle)
    assert decision.reason.HasField("end_turn")


def test_a_result_that_came_before_the_brain_stopped_the_call_takes_its_place() -> None:
    log = Log("bash")
    (call,) = log.state().open_calls()
    log.add(log.factory.stopped(call, INTERRUPTED))
    state = log.state()
    correct(state, worked(log.calls[0], "after all"))
    result = state.calls[log.calls[0]].result
    assert result is not None
    assert b"after all" in result.block


def test_the_model_is_told_that_its_tools_run_elsewhere() -> None:
    log = Log("bash")
    body = HARNESS.request(log.state()).body.decode()
    assert WORKER_NOTE in body
    assert SANDBOX_NOTE not in body
