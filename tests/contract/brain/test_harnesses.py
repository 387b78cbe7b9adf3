"""What every harness promises, over golden logs: the same log, the same decision, the same bytes.

The shipped ones are tried, and one more that `DROVER_TEST_HARNESS` names as `module:callable`, as
an entry point would (docs/harness.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from catalogue.models import load
from drover.event.v1.agent_event_pb2 import EVALUATED_PERMISSION_ALLOW, AgentToolUse
from drover.event.v1.event_pb2 import Event
from drover.event.v1.span_event_pb2 import SpanModelRequestEnd
from services.brain.domain.checkpoint import Checkpoints
from services.brain.domain.decision import (
    CallModel,
    Compact,
    Decision,
    GiveUp,
    Interrupt,
    Limits,
    Mine,
    Refuse,
    RunTools,
)
from services.brain.domain.state import State
from services.brain.harness.minimal import MinimalHarness
from services.brain.harness.plugins import load_one
from services.brain.harness.port import Harness, Setup
from services.brain.harness.standard import StandardHarness
from tests.replay import golden
from tests.replay.golden import WAITING, GoldenLog
from tests.unit.brain.logs import World, message

SETUP = Setup(models=load(None), max_output_tokens=32_000, limits=Limits(requests=50))
CHECKPOINTS = Checkpoints()
LOGS = {name: GoldenLog.read(path) for name, path in golden.recorded().items()}

Make = Callable[[], Harness]
HARNESSES: dict[str, Make] = {
    "standard": lambda: StandardHarness(models=SETUP.models, limits=SETUP.limits),
    "minimal": lambda: MinimalHarness(SETUP),
}
if named := os.environ.get("DROVER_TEST_HARNESS"):
    HARNESSES[named] = lambda: load_one(named, SETUP)


@pytest.fixture(params=list(HARNESSES))
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a harness: every brain has one of its own."""
    return HARNESSES[request.param]


@pytest.fixture(params=list(LOGS))
def log(request: pytest.FixtureRequest) -> GoldenLog:
    return LOGS[request.param]


def folded(harness: Harness, log: GoldenLog) -> Iterator[State]:
    """The state behind every event of a log, and before the first."""
    state = harness.begin(log.session)
    yield state
    for event in log.events:
        harness.project(state, event, 0.0)
        state.seq = event.seq
        yield state


def mines(state: State) -> list[Mine]:
    """A brain that has just woken, and one that is at work."""
    running = frozenset(call.id for call in state.open_calls())
    return [Mine(), Mine(request=state.request, running=running, rested=True)]


def decisions(harness: Harness, state: State) -> list[Decision]:
    return [
        harness.decide(state, waiting, mine)
        for mine in mines(state)
        for waiting in WAITING.values()
    ]


def asks(harness: Harness, state: State) -> bool:
    return any(isinstance(decision, CallModel | Compact) for decision in decisions(harness, state))


def test_the_same_log_gives_the_same_decisions_and_bytes_in_every_brain(
    make: Make, log: GoldenLog
) -> None:
    one, other = make(), make()
    for state, again in zip(folded(one, log), folded(other, log), strict=True):
        assert decisions(one, state) == decisions(other, again)
        if asks(one, state):
            assert one.request(state) == other.request(again)


def test_the_shipped_harnesses_decide_alike_on_what_is_recorded(log: GoldenLog) -> None:
    standard, minimal = HARNESSES["standard"](), HARNESSES["minimal"]()
    for state, other in zip(folded(standard, log), folded(minimal, log), strict=True):
        # Where the window is full, one makes room and the other gives up.
        if not state.context.due and not other.context.due:
            assert decisions(standard, state) == decisions(minimal, other)


def test_deciding_and_asking_change_nothing_and_the_state_can_be_kept(
    make: Make, log: GoldenLog
) -> None:
    harness = make()
    for state in folded(harness, log):
        before = CHECKPOINTS.write(state, harness.fold)
        decisions(harness, state)
        if asks(harness, state):
            assert harness.request(state) == harness.request(state)
        assert CHECKPOINTS.write(state, harness.fold) == before


def test_a_brain_that_takes_up_a_kept_state_goes_on_with_the_same_bytes(
    make: Make, log: GoldenLog
) -> None:
    harness = make()
    for state in folded(harness, log):
        if not asks(harness, state):
            continue
        kept = CHECKPOINTS.write(state, harness.fold)
        restored = CHECKPOINTS.read(kept, harness.fold, state.session_id, state.seq)
        assert make().request(restored) == harness.request(state)


def test_calls_that_are_run_refused_or_stopped_are_open_in_the_log(
    make: Make, log: GoldenLog
) -> None:
    harness = make()
    for state in folded(harness, log):
        is_open = {call.id for call in state.open_calls()}
        for decision in decisions(harness, state):
            if isinstance(decision, RunTools | Refuse | Interrupt):
                assert {call.id for call in decision.calls} <= is_open


def test_requests_are_such_as_the_messages_api_takes(make: Make, log: GoldenLog) -> None:
    harness = make()
    for state in folded(harness, log):
        if not asks(harness, state):
            continue
        request = harness.request(state)
        body = json.loads(request.body)
        assert (body["stream"], body["model"]) == (True, request.model)
        assert 0 < body["max_tokens"] <= SETUP.max_output_tokens
        _check_messages(body["messages"])


def _check_messages(messages: list[dict[str, Any]]) -> None:
    assert messages[0]["role"] == "user"
    assert all(message["content"] for message in messages)
    for said, answered in pairwise([*messages, {"role": "", "content": []}]):
        assert said["role"] != answered["role"]
        calls = [part["id"] for part in said["content"] if part["type"] == "tool_use"]
        results = [
            part["tool_use_id"] for part in answered["content"] if part["type"] == "tool_result"
        ]
        assert calls == results


@pytest.mark.parametrize("seed", range(6))
def test_in_a_world_of_chance_every_request_is_sound(make: Make, seed: int) -> None:
    harness = make()
    world = World(seed, harness)  # type: ignore[arg-type]  # the port is all that it uses
    for _ in range(400):
        world.step()
        if asks(harness, world.state):
            _check_messages(json.loads(harness.request(world.state).body)["messages"])


def test_a_model_that_never_stops_calling_tools_is_stopped(make: Make) -> None:
    harness = make()
    world = World(1, harness)  # type: ignore[arg-type]
    assert not world.state.self_hosted  # there it would wait for workers
    world.inbox.append(message("Loop"))
    requests = 0
    for _ in range(20 * SETUP.limits.requests):
        if isinstance(decision := _next(world), GiveUp):
            break
        if isinstance(decision, CallModel) and world.state.request:
            requests += 1
            world.append(*_call(world))
        else:
            world.perform(decision)
    assert isinstance(decision, GiveUp)
    assert requests == SETUP.limits.requests
    assert decision.error.HasField("tool_use_limit_reached_error")


def _next(world: World) -> Decision:
    mine = Mine(world.request, frozenset(world.running), world.rested)
    return world.harness.decide(world.state, world.waiting, mine)


def _call(world: World) -> list[Event]:
    request, number = world.state.request, len(world.log)
    use = AgentToolUse(
        name="bash",
        input="{}",
        model_call_id=f"toolu_{number}",
        evaluated_permission=EVALUATED_PERMISSION_ALLOW,
    )
    end = SpanModelRequestEnd(model_request_start_id=request, stop_reason="tool_use")
    return [
        Event(id=f"sevt_use_{number}", agent_tool_use=use),
        Event(id=f"sevt_end_{number}", span_model_request_end=end),
    ]
