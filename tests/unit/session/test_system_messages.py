"""Where a `system.message` is taken, what it goes with, and when it enters the log (EVENTS §1)."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from tests.doubles.session_events import (
    ASK,
    confirmation,
    custom_result,
    custom_use,
    idle,
    interrupt,
    message,
    running,
    said,
    system_message,
    tool_use,
)
from tests.doubles.session_world import World, details, kinds


def refused(world, *events):
    before = world.state
    with pytest.raises(DroverError) as caught:
        world.accept(*events)
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert world.state == before
    return caught.value


def waiting_for(*calls):
    """A session idle on `requires_action` for calls that its brain has opened."""
    world = World(message())
    generation = world.open()
    world.append(generation, running(), take=lease_pb2.TAKE_INPUT_NEXT)
    ids = [call.id for call in calls]
    assert world.append(generation, *calls, idle(*ids), release=True).released
    return world


def test_it_waits_with_its_message_and_is_taken_along_with_it():
    world = World()
    stored = world.accept(message("one"), system_message())
    assert not any(event.HasField("processed_at") for event in stored)
    world.accept(message("two"))
    generation = world.open()
    first = world.append(generation, running(), take=lease_pb2.TAKE_INPUT_NEXT)
    assert kinds(first.taken) == ["user_message", "system_message"]
    assert first.input.message
    second = world.append(generation, said("hi"), take=lease_pb2.TAKE_INPUT_NEXT)
    assert kinds(second.taken) == ["user_message"]
    assert not second.input.message


def test_a_message_is_not_given_the_system_message_of_the_next():
    world = World()
    world.accept(message("one"), message("two"), system_message())
    generation = world.open()
    first = world.append(generation, running(), take=lease_pb2.TAKE_INPUT_NEXT)
    assert kinds(first.taken) == ["user_message"]
    second = world.append(generation, said("hi"), take=lease_pb2.TAKE_INPUT_NEXT)
    assert kinds(second.taken) == ["user_message", "system_message"]


def test_behind_a_tool_result_both_enter_the_log_at_once():
    world = waiting_for(custom_use("c1"), custom_use("c2"))
    stored = world.accept(custom_result("c1"), system_message())
    assert [event.seq for event in stored] == [stored[0].seq, stored[0].seq + 1]
    assert all(event.HasField("processed_at") for event in stored)
    assert world.news[-1].stamped == stored
    assert world.news[-1].input.log_grown
    assert world.state.waiting.total == 0


def test_behind_a_result_that_has_no_effect_it_has_none_either():
    world = waiting_for(custom_use("c1"), custom_use("c2"))
    world.accept(custom_result("c1"), system_message())
    length = world.state.head_seq
    again = world.accept(custom_result("c1"), system_message())
    assert again[1].HasField("processed_at")
    assert world.state.head_seq == length


def test_alone_it_enters_the_log_of_a_session_at_rest_and_wakes_nobody():
    world = World()
    [stored] = world.accept(system_message())
    assert stored.seq == 1
    assert not world.state.needs_brain
    assert not world.news[-1].wake
    assert kinds(world.events()) == ["system_message"]


@pytest.mark.parametrize(
    "events",
    [
        [system_message(), message()],
        [message(), system_message(), message()],
        [message(), system_message(), system_message()],
        [system_message(), system_message()],
        [interrupt(), system_message()],
        [message(), interrupt(), system_message()],
    ],
    ids=lambda events: " ".join(kinds(events)),
)
def test_anywhere_else_in_a_request_it_is_refused_and_with_it_all_of_the_request(events):
    world = World()
    error = refused(world, *events)
    assert error.message.startswith("events.")
    assert world.events() == []


def test_alone_it_is_refused_while_the_session_runs_or_is_about_to():
    world = World(message())
    assert refused(world, system_message()).message.startswith("events.0: ")
    world.append(world.open(), running(), take=lease_pb2.TAKE_INPUT_NEXT)
    refused(world, system_message())
    world.accept(message("more"), system_message())


def test_while_answers_are_waited_for_it_goes_only_behind_a_tool_result():
    world = waiting_for(tool_use("c1", ASK), custom_use("c2"))
    refused(world, system_message())
    refused(world, confirmation("c1"), system_message())
    refused(world, message(), system_message())
    world.accept(custom_result("c2"), system_message())


def test_model_that_takes_none_is_named_with_the_contracts_code():
    world = World()
    kept = details()
    kept.agent.model.id = "old-model"
    world.store.run(lambda tx: tx.save_details(world.ref.session_id, kept))
    error = refused(world, message(), system_message())
    assert error.metadata["error_code"] == "model_does_not_support_mid_conversation_system"
    assert "old-model" in error.message
    assert error.message.startswith("events.1.type: ")
