"""What a client may send to a session, and when (EVENTS §1)."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2, user_event_pb2
from drover.session.v1 import lease_pb2
from tests.doubles.session_events import (
    ALLOW,
    ASK,
    confirmation,
    custom_result,
    custom_use,
    idle,
    interrupt,
    message,
    running,
    said,
    terminated,
    tool_result,
    tool_use,
)
from tests.doubles.session_world import World, kinds


def refused(world, *events):
    before = world.state
    with pytest.raises(DroverError) as caught:
        world.accept(*events)
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


def test_a_message_waits_unstamped_and_wakes_a_brain():
    world = World()
    [stored] = world.accept(message("hi"))
    assert stored.id.startswith("sevt_")
    assert not stored.HasField("processed_at")
    assert world.state.needs_brain
    assert world.news[-1].wake
    assert kinds(world.events()) == ["user_message"]


def test_a_session_changes_when_it_comes_to_need_a_brain_and_not_with_every_message():
    world = World()
    world.clock.move(5)
    world.accept(message("one"))
    changed = world.state.updated_at
    assert changed == world.state.created_at + 5_000_000
    world.clock.move(5)
    world.accept(message("two"))
    assert world.state.updated_at == changed
    generation = world.open()
    world.clock.move(5)
    world.abandon(generation)
    assert world.state.updated_at == changed + 10_000_000


def test_a_message_while_the_session_waits_for_answers_is_refused():
    world = waiting_for(tool_use("c1", ASK))
    error = refused(world, message())
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith("events.0: ")


def test_a_message_behind_an_interrupt_is_taken_while_the_session_waits_for_answers():
    world = waiting_for(tool_use("c1", ASK))
    world.accept(interrupt(), message())
    assert world.state.needs_brain


def test_a_message_behind_the_last_answer_is_taken():
    world = waiting_for(tool_use("c1", ASK), custom_use("c2"))
    refused(world, confirmation("c1"), message())
    world.accept(confirmation("c1"), custom_result("c2"), message())
    assert world.state.unanswered == 0


def test_a_reason_for_a_denial_is_taken_with_a_denial_only():
    world = waiting_for(tool_use("c1", ASK))
    allowed = confirmation("c1")
    allowed.user_tool_confirmation.deny_message = "no"
    assert refused(world, allowed).message.startswith("events.0.deny_message: ")
    denied = confirmation("c1")
    denied.user_tool_confirmation.result = user_event_pb2.CONFIRMATION_RESULT_DENY
    denied.user_tool_confirmation.deny_message = "no"
    world.accept(denied)


@pytest.mark.parametrize(
    "data", ["", "!!", "abc", "QUJD=", "QUJD QUJD", "QUJD\n", "\u00e9", "===="]
)
@pytest.mark.parametrize("kind", ["image", "document"])
def test_a_source_that_is_no_base64_is_refused_by_path(kind, data):
    world = World()
    sent = message("see")
    block = getattr(sent.user_message.content.add(), kind)
    block.source.base64.media_type = "image/png"
    block.source.base64.data = data
    assert refused(world, sent).message.startswith("events.0.content.1.source.data: ")
    block.source.base64.data = "QUJDRA=="
    world.accept(sent)


def test_one_answer_of_two_wakes_a_brain():
    world = waiting_for(tool_use("c1", ASK), tool_use("c2", ASK))
    assert not world.state.needs_brain
    world.accept(confirmation("c2"))
    assert world.state.needs_brain
    assert world.news[-1].wake


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([confirmation("nowhere")], "no such tool call"),
        ([confirmation("allowed")], "not evaluated to ask"),
        ([confirmation("custom")], "no such tool call"),
        ([custom_result("nowhere")], "no such call"),
        ([custom_result("asked")], "no such call"),
    ],
)
def test_an_answer_to_a_call_that_does_not_wait_for_it_is_refused(events, text):
    world = waiting_for(tool_use("asked", ASK), tool_use("allowed", ALLOW), custom_use("custom"))
    error = refused(world, *events)
    assert error.reason is Reason.INVALID_ARGUMENT
    assert text in error.message


def test_a_late_confirmation_is_accepted_and_has_no_effect():
    world = waiting_for(tool_use("c1", ASK))

    def late():
        before = world.state
        [echo] = world.accept(confirmation("c1"))
        assert echo.HasField("processed_at")
        assert world.state == before

    world.accept(confirmation("c1"))
    late()
    generation = world.open()
    world.append(generation, running(), take=lease_pb2.TAKE_INPUT_NEXT)
    late()
    world.append(generation, tool_result("c1"))
    late()


def test_a_custom_result_enters_the_log_at_once():
    world = waiting_for(custom_use("c1"))
    head = world.state.head_seq
    [stored] = world.accept(custom_result("c1"))
    assert stored.seq == head + 1
    assert stored.HasField("processed_at")
    assert world.state.needs_brain


def test_a_second_custom_result_is_answered_with_the_first_and_changes_nothing():
    world = waiting_for(custom_use("c1"))
    [first] = world.accept(custom_result("c1", "one"))
    before = world.state
    [second] = world.accept(custom_result("c1", "two"))
    assert second == first
    assert world.state == before


def test_two_custom_results_for_a_call_in_one_request_leave_one():
    world = waiting_for(custom_use("c1"))
    first, second = world.accept(custom_result("c1", "one"), custom_result("c1", "two"))
    assert first == second
    assert kinds(world.log).count("user_custom_tool_result") == 1


def test_a_custom_result_for_a_call_that_the_brain_closed_is_accepted_without_effect():
    world = waiting_for(custom_use("c1"))
    world.accept(interrupt())
    generation = world.open()
    world.append(generation, tool_result("c1", "interrupted"), take=lease_pb2.TAKE_INPUT_CONTROL)
    before = world.state
    [echo] = world.accept(custom_result("c1"))
    assert echo.HasField("user_custom_tool_result")
    assert world.state == before


def test_one_bad_event_refuses_the_whole_request():
    world = World()
    error = refused(world, message("good"), confirmation("nowhere"), message("good"))
    assert error.message.startswith("events.1.tool_use_id: ")
    assert world.events() == []


@pytest.mark.parametrize(
    ("variant", "text"),
    [
        ("user_define_outcome", "not supported by this release"),
        ("user_tool_result", "self_hosted"),
        ("agent_message", "agent.message is not sent by clients"),
        ("session_status_idle", "session.status_idle is not sent by clients"),
        ("session_updated", "session.updated is not sent by clients"),
    ],
)
def test_types_that_no_client_may_send_are_refused_by_name(variant, text):
    event = event_pb2.Event()
    getattr(event, variant).SetInParent()
    error = refused(World(), message(), event)
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith("events.1.type: ")
    assert text in error.message


@pytest.mark.parametrize("block", ["redacted", "search_result"])
def test_blocks_that_a_message_cannot_hold_are_refused_by_path(block):
    event = message()
    getattr(event.user_message.content.add(), block).SetInParent()
    error = refused(World(), event)
    assert error.message.startswith("events.0.content.1.type: ")


def test_an_interrupt_of_an_unknown_thread_is_refused():
    world = World()
    error = refused(world, interrupt("sthr_other"))
    assert error.message.startswith("events.0.session_thread_id: ")
    world.accept(interrupt(world.state.primary_thread_id))


def test_an_archived_session_takes_no_events():
    world = World()
    world.archive()
    for event in (message(), interrupt(), confirmation("c1"), custom_result("c1")):
        error = refused(world, event)
        assert error.reason is Reason.ARCHIVED
        assert error.message == "the session is archived: create another to go on"


def test_a_terminated_session_takes_no_events():
    world = World(message())
    generation = world.open()
    world.append(generation, said("?"), terminated(), take=lease_pb2.TAKE_INPUT_ALL, release=True)
    assert refused(world, message()).reason is Reason.ARCHIVED


def test_a_repeated_id_is_a_success_that_appends_nothing():
    world = World()
    [first] = world.accept(message("hi", "mine"))
    before = world.state
    [again] = world.accept(message("hi", "mine"))
    assert again == first
    assert world.state == before


def test_a_repeated_id_among_new_events_stores_only_those():
    world = World()
    world.accept(message("one", "e1"))
    stored = world.accept(message("one", "e1"), message("two", "e2"))
    assert [event.id for event in stored] == ["e1", "e2"]
    assert [event.id for event in world.events()] == ["e1", "e2"]


def test_a_repeated_id_is_known_after_the_event_was_taken():
    world = World()
    world.accept(message("hi", "mine"))
    world.append(world.open(), running(), take=lease_pb2.TAKE_INPUT_NEXT)
    [again] = world.accept(message("hi", "mine"))
    assert again.seq == 1
    assert world.state.waiting.total == 0


def test_a_repeated_answer_is_known_whatever_thread_it_names():
    world = World()
    generation = world.open()
    world.append(generation, running(), custom_use("c1"), idle("c1"), release=True)

    def answer():
        event = custom_result("c1")
        event.id, event.user_custom_tool_result.session_thread_id = "mine", "sthr_other"
        return event

    [first] = world.accept(answer())
    assert world.accept(answer()) == [first]


def test_an_id_that_belongs_to_another_event_is_a_conflict():
    world = World()
    world.accept(message("hi", "mine"))
    assert refused(world, message("bye", "mine")).reason is Reason.CONFLICT
    assert refused(world, message("a", "twice"), message("a", "twice")).reason is (
        Reason.INVALID_ARGUMENT
    )


def test_what_a_client_says_of_position_and_time_counts_for_nothing():
    event = message()
    event.seq, event.thread_id = 99, "sthr_forged"
    event.processed_at.seconds = 1
    [stored] = World().accept(event)
    assert (stored.seq, stored.thread_id, stored.HasField("processed_at")) == (0, "", False)
