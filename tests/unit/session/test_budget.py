"""Budgets of sessions: changing them, and what a session that stands at one takes."""

from __future__ import annotations

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2, usage_pb2
from drover.session.v1 import session_service_pb2
from services.session.domain import budget, lifecycle, view
from services.session.domain.session import Stop
from services.session.domain.snapshot import describe, restore
from tests.doubles.session_events import (
    confirmation,
    custom_result,
    custom_use,
    idle,
    interrupt,
    message,
    running,
)
from tests.doubles.session_world import World, kinds

CAP = 50
CENT = budget.PICO_PER_CENT


def used(pico=0):
    return usage_pb2.UsageSnapshot(
        exact_list_cost=pico, exact_token_cost=pico, list_cost=budget.money(pico)
    )


def stopped(cap=CAP):
    """What a brain appends when the cap that it knows is reached."""
    usage, stop = event_pb2.Event(), event_pb2.Event()
    if cap is not None:
        usage.session_usage.budget.CopyFrom(budget.message(cap))
    usage.session_usage.SetInParent()
    stop.session_status_idle.stop_reason.budget_reached.SetInParent()
    return usage, stop


def spent(pico=CAP * CENT):
    """A session that a brain has left at its budget."""
    world = World(message(), budget=CAP)
    generation = world.open()
    world.append(generation, take=2)
    world.append(generation, running(), *stopped(), usage=used(pico), release=True)
    return world


def change(amount=None):
    """An update of the budget; without an amount it removes it."""
    request = session_service_pb2.UpdateSessionRequest(session_id="sesn_1")
    request.update_mask.CopyFrom(FieldMask(paths=["budget"]))
    if amount is not None:
        request.budget.CopyFrom(budget.message(amount))
    return request


def refused(call):
    with pytest.raises(DroverError) as caught:
        call()
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    return caught.value


def test_a_session_at_its_budget_takes_no_message_and_says_what_it_takes():
    world = spent()
    before = world.state
    said = refused(lambda: world.accept(message())).message
    assert said.startswith("events.0.type: the session is at its budget")
    for kind in ("tool_confirmation", "tool_result", "custom_tool_result", "interrupt"):
        assert f"user.{kind}" in said
    assert world.state == before


def test_an_interrupt_at_the_budget_is_answered_and_kept_nowhere():
    world = spent()
    before, log = world.state, world.log
    (answered,) = world.accept(interrupt())
    assert answered.id
    assert answered.HasField("processed_at")
    assert (world.state, world.log) == (before, log)
    assert not world.news[-1].wake


def test_an_interrupt_carries_no_message_past_the_budget():
    world = spent()
    before = world.state
    said = refused(lambda: world.accept(interrupt(), message())).message
    assert said.startswith("events.1.type: the session is at its budget")
    assert world.state == before


def test_late_answers_are_taken_at_the_budget():
    world = World(message(), budget=CAP)
    generation = world.open()
    world.append(generation, take=2)
    world.append(generation, running(), custom_use("c1"))
    world.accept(custom_result("c1"))
    world.append(generation, *stopped(), usage=used(CAP * CENT), release=True)
    (again,) = world.accept(custom_result("c1", "other"))
    assert again.user_custom_tool_result.content[0].text.text == "42"
    with pytest.raises(DroverError, match=r"events\.0\.tool_use_id"):
        world.accept(confirmation("unknown"))


def test_raising_the_budget_wakes_a_brain_and_lets_messages_in_again():
    world = spent()
    world.update(change(CAP + 1))
    assert world.news[-1].wake
    assert world.state.needs_brain
    assert world.log[-1].session_updated.budget == budget.message(CAP + 1)
    world.accept(message("more"))
    assert world.state.waiting.messages == 1


def test_removing_the_budget_wakes_a_brain_and_is_final():
    world = spent()
    world.update(change())
    assert world.news[-1].wake
    assert world.log[-1].session_updated.budget_removed
    assert not world.log[-1].session_updated.HasField("budget")
    head = world.state.head_seq
    world.update(change())
    assert world.state.head_seq == head
    assert refused(lambda: world.update(change(CAP * 2))).error_code == "budget_create_only"


def test_no_budget_is_given_to_a_session_that_was_made_without_one():
    world = World()
    assert refused(lambda: world.update(change(CAP))).error_code == "budget_create_only"


@pytest.mark.parametrize("cap", [1, CAP - 1, CAP])
def test_a_budget_that_is_consumed_already_is_not_taken(cap):
    world = spent()
    error = refused(lambda: world.update(change(cap)))
    assert error.error_code == "budget_not_raised"
    assert "$0.5000" in error.message
    assert not world.state.needs_brain


def test_what_counts_is_the_exact_cost_and_not_the_reported_one():
    world = spent(CAP * CENT - 1)
    assert view.session(snapshot(world)).usage.list_cost.amount == str(CAP)
    world.update(change(CAP + 1))
    over = spent(CAP * CENT + 1)
    assert view.session(snapshot(over)).usage.list_cost.amount == str(CAP)
    refused(lambda: over.update(change(CAP)))


def test_a_budget_may_be_lowered_above_what_is_consumed():
    world = World(message(), budget=CAP)
    generation = world.open()
    world.append(generation, take=2)
    world.append(generation, running(), idle(), usage=used(10 * CENT), release=True)
    world.update(change(11))
    assert view.session(snapshot(world)).budget == budget.message(11)
    assert not world.state.needs_brain
    refused(lambda: world.update(change(10)))


def test_the_same_budget_again_changes_nothing():
    world = World(budget=CAP)
    world.update(change(CAP))
    assert not world.log


def test_a_brain_that_stops_at_a_budget_that_was_raised_meanwhile_is_told_so():
    world = World(message(), budget=CAP)
    generation = world.open()
    world.append(generation, running(), take=2)
    world.update(change(CAP * 2))
    ack = world.append(generation, *stopped(CAP), usage=used(CAP * CENT), release=True)
    assert ack.input_pending
    assert ack.input.log_grown
    assert kinds(ack.others) == ["session_updated"]
    assert world.state.stop is Stop.NONE
    ack = world.append(generation, *stopped(CAP * 2), usage=used(CAP * CENT), release=True)
    assert ack.released


def test_a_brain_that_stops_at_a_budget_that_was_removed_is_told_so_however_late():
    world = World(message(), budget=CAP)
    generation = world.open()
    world.append(generation, running(), take=2)
    world.update(change())
    # The change is sent with an acknowledgement that the brain has not read yet.
    world.append(generation)
    ack = world.append(generation, *stopped(CAP), usage=used(CAP * CENT), release=True)
    assert (ack.input_pending, ack.input.log_grown, list(ack.others)) == (True, True, [])


def test_a_thread_costs_its_tokens_and_the_session_its_time_too():
    world = spent()
    usage = used(3 * CENT)
    usage.exact_token_cost, usage.exact_list_cost = 2 * CENT + CENT // 2, 3 * CENT
    state = world.state
    state.usage = usage.SerializeToString()
    details = snapshot(world).details
    (thread,) = world.store.run(lambda tx: tx.threads(state.id), keep=False)
    shown = view.thread(thread, state, details, state.head_at)
    assert shown.usage.list_cost.amount == "3"
    assert not shown.usage.HasField("exact_list_cost")
    unpriced = usage_pb2.UsageSnapshot(input_tokens=1)
    state.usage = unpriced.SerializeToString()
    assert not view.thread(thread, state, details, state.head_at).usage.HasField("list_cost")


def snapshot(world):
    return world.store.run(lambda tx: lifecycle.read(tx, world.ref), keep=False)


@pytest.mark.parametrize("cap", [None, CAP])
def test_a_budget_goes_along_when_a_session_moves(cap):
    world = World(budget=cap)
    state, details = world.state, snapshot(world).details
    threads = world.store.run(lambda tx: tx.threads(state.id), keep=False)
    moved = describe(state, details, threads, None)
    _, restored, _ = restore(moved, state.workspace_id)
    assert restored.budget == cap
