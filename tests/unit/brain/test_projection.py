"""The fold: the same however the log is cut, and always something that the API takes."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import SessionUpdated
from services.brain.domain import events
from services.brain.domain.calls import answered_by
from services.brain.domain.decision import Mine
from services.brain.domain.projection import correct
from services.brain.domain.state import State
from tests.doubles.api_history import check_history
from tests.doubles.prompt_cache import PromptCache
from tests.unit.brain import logs
from tests.unit.brain.logs import HARNESS, World, fold

SEEDS = st.integers(min_value=0, max_value=2**32)


def decided(world: World, state: State) -> object:
    return HARNESS.decide(state, world.waiting, Mine())


def grown(seed: int, steps: int) -> World:
    world = World(seed)
    for _ in range(steps):
        world.step()
    return world


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, steps=st.integers(0, 120), data=st.data())
def test_any_prefix_leads_to_the_same_decision_and_request_however_it_is_folded(
    seed: int, steps: int, data: st.DataObject
) -> None:
    world = grown(seed, steps)
    at = data.draw(st.integers(0, len(world.log)))
    cut = data.draw(st.integers(0, at))
    stored = [Event.FromString(event.SerializeToString()) for event in world.log[:at]]
    whole = fold(world.session, stored)
    pieces = fold(world.session, stored[:cut])
    HARNESS.request(pieces)  # looking at a state must not change it
    decided(world, pieces)
    pieces = fold(world.session, stored[cut:], pieces)
    assert decided(world, whole) == decided(world, pieces)
    assert HARNESS.request(whole) == HARNESS.request(pieces)
    assert whole.usage == pieces.usage


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_state_of_a_living_brain_equals_the_one_folded_from_its_log(seed: int) -> None:
    world = grown(seed, 120)
    again = fold(world.session, world.log)
    assert decided(world, again) == decided(world, world.state)
    assert HARNESS.request(again) == HARNESS.request(world.state)


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_every_request_is_one_that_the_api_takes(seed: int) -> None:
    world = World(seed)
    for _ in range(120):
        before = len(world.log)
        world.step()
        asked = any(event.HasField("agent_message") for event in world.log[before:])
        if not asked:
            continue
        start = next(
            i for i in range(before, -1, -1) if world.log[i].HasField("span_model_request_start")
        )
        check_history(json.loads(HARNESS.request(fold(world.session, world.log[: start + 1])).body))


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_every_request_reads_all_of_the_one_before_from_the_cache(seed: int) -> None:
    world, cache = World(seed), PromptCache()
    had = 0
    for _ in range(150):
        if world.state.request and world.state.request == world.request:
            found = cache.send(HARNESS.request(world.state).body)
            assert found.input_tokens == 0
            assert found.cache_read >= had
            had = found.total
        before = len(world.log)
        world.step()
        if any(
            event.span_model_request_end.stop_reason == "refusal" for event in world.log[before:]
        ):
            # It takes its turn out of the context.
            had = 0


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_every_session_comes_to_rest_once_nothing_new_comes(seed: int) -> None:
    world = grown(seed, 80)
    for _ in range(400):
        decision = HARNESS.decide(
            world.state,
            world.waiting,
            logs.Mine(world.request, frozenset(world.running), world.rested),
        )
        if isinstance(decision, logs.Release):
            break
        if isinstance(decision, logs.GoIdle) and decision.reason.HasField("requires_action"):
            assert world.answerable
            break
        world.perform(decision)
    else:
        raise AssertionError(decision)


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_every_call_has_at_most_one_result_and_none_is_run_unasked(seed: int) -> None:
    world = World(seed)
    allowed: set[str] = set()
    for _ in range(150):
        decision = world.step()
        if isinstance(decision, logs.RunTools):
            allowed |= {call.id for call in decision.calls}
    results = [call_id for event in world.log if (call_id := answered_by(event))]
    assert len(results) == len(set(results))
    for event in world.log:
        if event.HasField("agent_tool_use") and event.id in allowed:
            use = event.agent_tool_use
            confirmed = any(
                other.user_tool_confirmation.tool_use_id == event.id
                and other.user_tool_confirmation.result == logs.CONFIRMATION_RESULT_ALLOW
                for other in world.log
            )
            assert use.evaluation.HasField("always_allow") or confirmed


def test_answer_that_was_logged_before_our_own_takes_its_place() -> None:
    world = World(1)
    world.append(world._named(logs.message("Ask")), *world.factory.running())
    world.append(world.factory.request_start())
    assembler = logs.response.ResponseAssembler(world.factory)
    for raw in logs.model.response(logs.model.tool("ask_user", {})):
        assembler.feed(raw)
    world.append(*assembler.finish(world.state.request, world.state.permissions))
    (call,) = world.state.open_calls()
    answer = Event(
        user_custom_tool_result=logs.UserCustomToolResult(
            custom_tool_use_id=call.id, content=[events.text("42")]
        )
    )
    true = fold(world.session, [*world.log, answer])
    HARNESS.project(
        world.state, world.factory.result(call.id, [events.text("late")], is_error=True), 0.0
    )
    correct(world.state, answer)
    assert HARNESS.request(world.state) == HARNESS.request(true)


def test_events_of_other_threads_change_nothing() -> None:
    state = HARNESS.begin(logs.session())
    event = logs.message("not for you")
    event.thread_id = "sthr_other"
    HARNESS.project(state, event, 0.0)
    assert not state.needs_model


def test_update_of_the_tools_takes_effect_with_the_next_request() -> None:
    state = fold(logs.session(), [logs.message("Hi")])
    assert b'"bash"' in HARNESS.request(state).body
    custom = logs.every_kind_of_tool()[1]
    updated = Event(session_updated=SessionUpdated(agent=logs.agent(custom)))
    HARNESS.project(state, updated, 0.0)
    body = HARNESS.request(state).body
    assert b'"bash"' not in body
    assert b'"ask_user"' in body


def test_active_time_counts_running_only_and_goes_on_from_what_was_published() -> None:
    state = HARNESS.begin(logs.session())
    factory = events.EventFactory(logs.Numbered(), "sthr_1", "Worker")

    def at(second: int, *more: Event) -> None:
        for event in more:
            event.processed_at.seconds = second
            HARNESS.project(state, event, 0.0)

    at(100, *factory.running())
    at(104, *factory.rescheduled())
    at(110, *factory.running())
    at(112, *factory.idle(events.exhausted(), None, state.usage.snapshot(112.0), None))
    assert state.usage.active_at(1000.0) == 6.0
    at(200, *factory.running())
    assert state.usage.snapshot(203.5).active_seconds == 9.5
