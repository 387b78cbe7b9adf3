"""What a brain does under its lease: taking input, appending, giving the lease back."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2, session_event_pb2, usage_pb2
from drover.session.v1 import lease_pb2
from services.session.domain import holding, inbox, lifecycle, view
from services.session.domain.ports import CallState
from services.session.domain.session import Status, Stop
from tests.doubles.session_events import (
    ASK,
    DENY,
    confirmation,
    custom_result,
    custom_use,
    idle,
    interrupt,
    message,
    running,
    said,
    terminated,
    thread_running,
    tool_result,
    tool_use,
)
from tests.doubles.session_world import World, kinds

CONTROL = lease_pb2.TAKE_INPUT_CONTROL
NEXT = lease_pb2.TAKE_INPUT_NEXT
ALL = lease_pb2.TAKE_INPUT_ALL


def texts(events):
    return [event.user_message.content[0].text.text for event in events]


def test_positions_are_dense_and_stamps_never_decrease():
    world = World(message("one"), message("two"))
    generation = world.open()
    world.append(generation, running(), take=NEXT)
    world.clock.move(-60)  # the database's clock steps back
    world.append(generation, said("a"), said("b"))
    assert [event.seq for event in world.log] == [1, 2, 3, 4]
    stamps = [event.processed_at.ToMicroseconds() for event in world.log]
    assert stamps == sorted(stamps)


def test_taken_input_comes_before_the_events_of_the_append():
    world = World(message("one"))
    acknowledged = world.append(world.open(), running(), take=NEXT)
    assert kinds(world.log) == ["user_message", "session_status_running"]
    assert list(acknowledged.taken) == world.log[:1]
    assert acknowledged.head_seq == 2


def test_one_message_is_taken_at_a_time():
    world = World(message("one"), message("two"))
    generation = world.open()
    first = world.append(generation, take=NEXT)
    assert texts(first.taken) == ["one"]
    assert first.input.message
    assert texts(world.append(generation, take=NEXT).taken) == ["two"]
    assert not world.append(generation, take=NEXT).taken


def test_an_interrupt_is_taken_first_and_no_message_with_it():
    world = World(message("one"), message("two"))
    world.accept(interrupt())
    generation = world.open()
    taken = world.append(generation, take=NEXT).taken
    assert kinds(taken) == ["user_interrupt"]
    assert texts(world.append(generation, take=NEXT).taken) == ["one"]


def test_control_takes_interrupts_then_confirmations_and_leaves_messages():
    world = World(message("one"))
    generation = world.open()
    world.append(generation, running(), tool_use("c1", ASK), tool_use("c2", ASK))
    world.accept(confirmation("c1"), interrupt(), confirmation("c2"))
    taken = world.append(generation, take=CONTROL).taken
    assert kinds(taken) == ["user_interrupt", "user_tool_confirmation", "user_tool_confirmation"]
    assert world.state.waiting.messages == 1


def test_all_takes_everything_interrupts_first():
    world = World(message("one"), message("two"))
    world.accept(interrupt())
    taken = world.append(world.open(), take=ALL).taken
    assert kinds(taken) == ["user_interrupt", "user_message", "user_message"]


def test_a_release_that_leaves_input_behind_is_refused_and_appends_nothing():
    world = World(message("one"), message("two"))
    generation = world.open()
    world.append(generation, running(), take=NEXT)
    before = world.state
    refused = world.append(generation, idle(), release=True)
    assert refused.input_pending
    assert not refused.released
    assert refused.input.message
    assert world.state == before
    assert world.append(generation, idle(), take=ALL, release=True).released
    assert not world.state.needs_brain


def test_messages_behind_unanswered_calls_do_not_keep_the_brain():
    world = World(message("one"), message("two"))
    generation = world.open()
    world.append(generation, running(), custom_use("c1"), take=NEXT)
    assert world.append(generation, idle("c1"), release=True).released
    state = world.state
    assert state.stop is Stop.REQUIRES_ACTION
    assert not state.needs_brain
    assert state.waiting.messages == 1


def test_a_confirmation_that_has_come_keeps_the_brain():
    world = World(message())
    generation = world.open()
    world.append(generation, running(), tool_use("c1", ASK), take=NEXT)
    world.accept(confirmation("c1"))
    assert world.append(generation, idle("c1"), release=True).input_pending


def test_a_custom_result_that_has_come_keeps_the_brain_and_is_told_to_it():
    world = World(message())
    generation = world.open()
    world.append(generation, running(), custom_use("c1"), take=NEXT)
    world.accept(custom_result("c1"))
    refused = world.append(generation, idle("c1"), release=True)
    assert refused.input_pending
    assert kinds(refused.others) == ["user_custom_tool_result"]
    assert world.append(generation, idle(), release=True).released


def test_a_release_while_the_session_runs_is_refused():
    world = World(message())
    generation = world.open()
    with pytest.raises(DroverError, match="must go idle first"):
        world.append(generation, running(), take=ALL, release=True)


def test_a_brain_that_finds_nothing_to_do_gives_the_lease_back():
    world = World()
    assert world.append(world.open(), release=True).released
    assert world.state.lease_expires_at is None


def test_idle_clearing_and_release_are_one():
    world = World(message())
    generation = world.open()
    world.append(generation, running(), take=NEXT)
    world.append(generation, idle(), release=True)
    state = world.state
    assert (state.activity.status, state.needs_brain, state.holder) == (Status.IDLE, False, "")
    with pytest.raises(DroverError) as caught:
        world.append(generation, said("late"))
    assert caught.value.reason is Reason.LEASE_LOST


def test_a_run_of_appends_stops_at_the_first_refusal_and_keeps_what_came_before():
    world = World(message())
    generation = world.open()
    result = world.appends(
        generation,
        lease_pb2.AppendEvents(request_id=1, events=[running()], take=NEXT),
        lease_pb2.AppendEvents(request_id=2, events=[tool_result("nowhere")]),
        lease_pb2.AppendEvents(request_id=3, events=[said("never")]),
    )
    assert [one.request_id for one in result.acknowledged] == [1]
    assert result.refusal.reason is Reason.INVALID_ARGUMENT
    assert kinds(world.log) == ["user_message", "session_status_running"]


def test_what_entered_by_another_way_is_told_once_and_in_order():
    world = World(message())
    generation = world.open()
    world.append(generation, running(), custom_use("c1"), custom_use("c2"), take=NEXT)
    world.accept(custom_result("c2"))
    world.accept(custom_result("c1"))
    acknowledged = world.append(generation, said("on"))
    assert [one.user_custom_tool_result.custom_tool_use_id for one in acknowledged.others] == [
        "c2",
        "c1",
    ]
    assert acknowledged.head_seq == acknowledged.others[-1].seq + 1
    assert not world.append(generation, said("on")).others


def test_a_repeated_append_appends_and_takes_nothing():
    world = World(message("one"), message("two"))
    generation = world.open()
    request = lease_pb2.AppendEvents(request_id=1, events=[said("a", "e1")], take=NEXT)
    world.appends(generation, request)
    again = lease_pb2.AppendEvents(request_id=2, events=[said("a", "e1")], take=NEXT)
    result = world.appends(generation, again)
    assert not result.acknowledged[0].taken
    assert result.acknowledged[0].head_seq == 2
    assert world.state.waiting.messages == 1


def test_a_repeated_append_is_known_by_what_the_brain_said_not_by_what_was_filled_in():
    world = World()
    generation = world.open()

    def usage():
        return event_pb2.Event(id="u1", session_usage=session_event_pb2.SessionUsageEvent())

    world.append(generation, running())
    world.clock.move(3)
    world.append(generation, usage())
    assert world.log[-1].session_usage.usage.active_seconds == 3
    world.clock.move(1)
    assert world.append(generation, usage(), said("on", "e1")).head_seq == 3


@pytest.mark.parametrize(
    "event", [said("another", "e1"), tool_use("e1"), said("in the inbox", "waits")]
)
def test_an_append_with_the_id_of_another_event_is_refused_whole(event):
    world = World(message("one"))
    generation = world.open()
    world.append(generation, said("a", "e1"))
    world.accept(message("later", "waits"))
    before = world.log
    for take in (0, ALL):
        with pytest.raises(DroverError, match=r"events\.1\.id") as refused:
            world.append(generation, said("new", "e2"), event, take=take)
        assert refused.value.reason is Reason.CONFLICT
    assert world.log == before
    assert texts(world.append(generation, take=ALL).taken) == ["one", "later"]


@pytest.mark.parametrize("call", [tool_use("c1"), tool_use("c1", ASK), tool_use("c1", DENY)])
def test_a_call_has_at_most_one_recorded_result(call):
    world = World(message())
    generation = world.open()
    world.append(generation, running(), call, take=NEXT)
    world.append(generation, tool_result("c1", "first", "r1"))
    acknowledged = world.append(generation, tool_result("c1", "second", "r2"), said("on"))
    results = [event.id for event in world.log if event.HasField("agent_tool_result")]
    assert results == ["r1"]
    assert acknowledged.head_seq == world.log[-1].seq


def test_the_clients_result_wins_over_a_later_one_of_the_brain():
    world = World(message())
    generation = world.open()
    world.append(generation, running(), custom_use("c1"), take=NEXT)
    world.accept(custom_result("c1"))
    acknowledged = world.append(generation, tool_result("c1", "interrupted"))
    assert kinds(acknowledged.others) == ["user_custom_tool_result"]
    assert not any(event.HasField("agent_tool_result") for event in world.log)


def test_a_result_beside_its_call_is_one_append():
    world = World(message())
    generation = world.open()
    world.append(generation, running(), tool_use("c1", DENY), tool_result("c1"), take=NEXT)
    calls = world.store.run(lambda tx: tx.calls(world.ref.session_id, ["c1"]), keep=False)
    assert calls["c1"].state is CallState.CLOSED


def test_a_result_for_an_unknown_call_is_refused():
    world = World(message())
    with pytest.raises(DroverError, match="unknown call nowhere"):
        world.append(world.open(), tool_result("nowhere"))


@pytest.mark.parametrize(
    "variant", ["user_message", "user_interrupt", "system_message", "session_deleted"]
)
def test_a_brain_cannot_append_what_is_not_its_own(variant):
    event = event_pb2.Event()
    getattr(event, variant).SetInParent()
    world = World(message())
    with pytest.raises(DroverError, match="not a brain's to append"):
        world.append(world.open(), event)


def test_time_in_running_is_counted_by_the_databases_clock():
    world = World()
    world.accept(message())
    generation = world.open()
    world.append(generation, running(), take=NEXT)
    world.clock.move(3)
    world.append(generation, idle(), release=True)
    world.clock.move(100)
    now = world.store.run(lambda tx: tx.now(), keep=False)
    assert world.state.activity.active_seconds(now) == pytest.approx(3)


def test_usage_is_kept_with_the_append():
    world = World(message())
    usage = usage_pb2.UsageSnapshot(input_tokens=7)
    world.append(world.open(), running(), usage=usage)
    assert world.state.usage == usage.SerializeToString()


def test_the_usage_event_tells_the_running_time_that_the_session_shows_afterwards():
    world = World(message())
    generation = world.open()
    world.append(generation, running(), take=NEXT)
    world.clock.move(3)
    used = event_pb2.Event()
    used.session_usage.usage.active_seconds = 99  # a brain's own clock does not count
    world.append(generation, used, idle(), release=True)
    world.clock.move(100)
    told = world.log[-2].session_usage.usage.active_seconds
    shown = view.session(world.do(lambda tx: (lifecycle.read(tx, world.ref), None)))
    assert told == pytest.approx(3)
    assert shown.usage.active_seconds == shown.stats.active_seconds == told


def test_the_primary_thread_follows_its_own_status_events():
    world = World(message())
    generation = world.open()
    world.append(generation, running(), thread_running(world.state.primary_thread_id))
    [thread] = world.store.run(lambda tx: tx.threads(world.ref.session_id), keep=False)
    assert thread.activity.status is Status.RUNNING


def test_a_terminated_session_needs_no_brain():
    world = World(message(), message())
    generation = world.open()
    world.append(generation, running(), terminated())
    assert not world.state.needs_brain
    assert world.append(generation, take=ALL, release=True).released
    assert world.news[-1].ends


def test_of_very_much_input_a_part_is_taken_at_a_time(monkeypatch):
    monkeypatch.setattr(inbox, "TAKE_BYTES", 1000)
    words = [f"{number}" + "x" * 300 for number in range(7)]
    world = World(*map(message, words))
    generation, taken = world.open(), []
    world.append(generation, running())
    world.accept(interrupt())
    while not (last := world.append(generation, idle(), take=ALL, release=True)).released:
        assert (last.input_pending, list(last.taken)) == (True, [])
        taken.append(world.append(generation, take=ALL).taken)
    taken.append(last.taken)
    assert [len(part) for part in taken] == [4, 3, 1]
    assert kinds(taken[0])[0] == "user_interrupt"
    assert texts([event for part in taken for event in part][1:]) == words


def test_an_event_that_is_more_than_is_taken_at_a_time_is_taken_alone(monkeypatch):
    monkeypatch.setattr(inbox, "TAKE_BYTES", 100)
    words = ["x" * 300, "y" * 300]
    world = World(*map(message, words))
    generation = world.open()
    assert texts(world.append(generation, take=ALL).taken) == words[:1]
    assert texts(world.append(generation, take=ALL).taken) == words[1:]


def test_what_comes_with_an_opening_takes_nothing_where_the_brain_knows_an_older_log():
    """A brain that sleeps on an old state may be woken to a turn that another one has begun."""
    world = World(message("one"))
    first = world.open()
    known = world.append(first, running(), idle(), take=NEXT, release=True).head_seq
    world.accept(message("two"))
    world.append(second := world.open(), running(), take=NEXT)
    world.accept(message("three"))
    take = lease_pb2.AppendEvents(take=NEXT)
    for after, taken in ((known, []), (known + 2, ["three"])):
        world.abandon(second)
        request = lease_pb2.OpenLease(
            session_id=world.ref.session_id, holder="brain", after_seq=after
        )

        def fn(tx, request=request):
            opened = holding.open_lease(tx, world.ref, request, [take], world.ids)
            return opened, opened.news

        opened = world.do(fn)
        [acknowledged] = opened.appends.acknowledged
        assert texts(acknowledged.taken) == taken
        assert acknowledged.head_seq == world.state.head_seq == known + 2 + len(taken)
        second = opened.snapshot.state.generation
