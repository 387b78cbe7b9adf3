"""Forking a session at any of its events."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.agent.v1 import agent_pb2
from drover.api.v1 import metadata_pb2
from drover.event.v1 import event_pb2
from drover.session.v1 import session_service_pb2
from services.session.domain import fork, listing
from services.session.domain.listing import EventsQuery
from services.session.domain.ports import CallState
from services.session.domain.session import Origin, Status, Stop
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
    thread_running,
    tool_result,
    tool_use,
)
from tests.doubles.session_transfer import forked
from tests.doubles.session_world import World, kinds, other_workspace

CLOSING = ["session_thread_status_idle", "session_usage", "session_status_idle"]


def request_start(event_id="request"):
    event = event_pb2.Event(id=event_id)
    event.span_model_request_start.SetInParent()
    return event


def request_end(start_id="request"):
    event = event_pb2.Event(id=f"end-{start_id}")
    event.span_model_request_end.model_request_start_id = start_id
    return event


def mcp_use(event_id):
    event = event_pb2.Event(id=event_id)
    event.agent_mcp_tool_use.name = "search"
    event.agent_mcp_tool_use.input = "{}"
    return event


def turned(*events, take=2):
    """A world whose brain has taken a message and appended these."""
    world = World(message("hello", "asked"))
    generation = world.open()
    world.append(generation, running(), *events, take=take)
    return world, generation


def log_of(world, snapshot):
    ref = snapshot.state.ref
    query = EventsQuery(limit=1000)
    return world.store.run(lambda tx: listing.list_events(tx, ref, query, None)).events


def stored(world, snapshot):
    return world.store.run(lambda tx: tx.state(snapshot.state.ref), keep=False)


async def refused(call):
    with pytest.raises(DroverError) as caught:
        await call
    return caught.value


async def test_a_fork_at_the_end_of_a_turn_is_the_same_log_in_an_idle_session():
    world, _ = turned(said("hi"), idle())
    world.clock.move(5)
    snapshot = await forked(world)
    assert log_of(world, snapshot) == world.log
    state = stored(world, snapshot)
    assert state == snapshot.state
    assert state.id not in {world.ref.session_id, ""}
    assert (state.status, state.stop) == (Status.IDLE, Stop.END_TURN)
    assert (state.head_seq, state.head_at) == (world.state.head_seq, world.state.head_at)
    assert state.created_at == state.updated_at > world.state.created_at
    assert (state.generation, state.holder, state.lease_expires_at) == (0, "", None)
    assert (state.usage, state.activity.active_micros) == (b"", 0)
    assert snapshot.details.origin == Origin(world.ref.session_id, world.state.head_seq)


async def test_a_fork_at_an_event_has_the_log_up_to_and_with_it():
    world, _ = turned(said("one", "first"), idle())
    generation = world.state.generation
    world.accept(message("again"))
    world.append(generation, running(), said("two", "second"), idle(), take=2)
    for event in world.log:
        snapshot = await forked(world, event.id)
        log = log_of(world, snapshot)
        assert log[: event.seq] == world.log[: event.seq]
        assert kinds(log[event.seq :]) in ([], CLOSING)
        assert [one.seq for one in log] == list(range(1, len(log) + 1))
        assert stored(world, snapshot).status is Status.IDLE


async def test_a_fork_amid_a_turn_ends_it():
    world, _ = turned(said("on it", "said"))
    world.clock.move(1)
    snapshot = await forked(world, "said")
    log = log_of(world, snapshot)
    assert kinds(log[3:]) == CLOSING
    assert log[3].session_thread_status_idle.session_thread_id == snapshot.state.primary_thread_id
    assert log[3].session_thread_status_idle.agent_name == "Dolly"
    assert log[5].session_status_idle.stop_reason.HasField("end_turn")
    assert log[3].processed_at.ToMicroseconds() > log[2].processed_at.ToMicroseconds()
    assert snapshot.state.head_at == log[5].processed_at.ToMicroseconds()
    assert snapshot.state.stop is Stop.END_TURN


async def test_a_message_that_nobody_has_answered_is_left_unanswered():
    world, _ = turned()
    snapshot = await forked(world, "asked")
    assert kinds(log_of(world, snapshot)) == ["user_message", *CLOSING]


async def test_open_calls_get_an_error_result_of_their_kind_in_the_order_they_were_opened():
    world, _ = turned(
        request_start(),
        tool_use("done"),
        tool_use("open"),
        mcp_use("mcp"),
        custom_use("custom"),
        tool_use("asked-for", ASK),
        request_end(),
        tool_result("done", event_id="result"),
    )
    snapshot = await forked(world)
    log = log_of(world, snapshot)[world.state.head_seq :]
    assert kinds(log) == [
        "agent_tool_result",
        "agent_mcp_tool_result",
        "user_custom_tool_result",
        "agent_tool_result",
        *CLOSING,
    ]
    results = [log[0].agent_tool_result, log[1].agent_mcp_tool_result]
    results += [log[2].user_custom_tool_result, log[3].agent_tool_result]
    assert all(result.is_error for result in results)
    assert {result.content[0].text.text for result in results} == {fork.FORKED}
    assert results[0].tool_use_id == "open"
    assert results[1].mcp_tool_use_id == "mcp"
    assert results[2].custom_tool_use_id == "custom"
    assert results[3].tool_use_id == "asked-for"
    ids = ["done", "open", "mcp", "custom", "asked-for"]
    calls = world.store.run(lambda tx: tx.calls(snapshot.state.id, ids))
    assert all(call.state is CallState.CLOSED for call in calls.values())
    assert calls["done"].result_id == "result"
    assert calls["open"].result_id == log[0].id
    assert snapshot.state.unanswered == 0


async def test_a_result_that_came_later_is_not_the_forks():
    world, generation = turned(custom_use("call"), idle("call"))
    world.accept(custom_result("call"))
    world.append(generation, running(), said("42 then"), idle())
    snapshot = await forked(world, "call")
    log = log_of(world, snapshot)
    assert kinds(log[3:]) == ["user_custom_tool_result", *CLOSING]
    assert log[3].user_custom_tool_result.content[0].text.text == fork.FORKED


async def test_a_session_that_waits_for_an_answer_waits_for_nothing_in_the_fork():
    world, _ = turned(tool_use("call", ASK), idle("call"))
    snapshot = await forked(world)
    assert kinds(log_of(world, snapshot)[4:]) == ["agent_tool_result", *CLOSING]
    assert (snapshot.state.stop, snapshot.state.unanswered) == (Stop.END_TURN, 0)
    world.ref = snapshot.state.ref
    world.accept(message("go on"))
    assert world.state.needs_brain


async def test_a_model_request_without_an_end_is_ended_before_its_calls():
    world, _ = turned(request_start(), said("let me"), tool_use("call"))
    snapshot = await forked(world, "call")
    log = log_of(world, snapshot)[5:]
    assert kinds(log) == ["span_model_request_end", "agent_tool_result", *CLOSING]
    end = log[0].span_model_request_end
    assert (end.model_request_start_id, end.is_error) == ("request", True)


async def test_a_request_and_the_one_that_judges_its_calls_are_both_ended():
    world, _ = turned(request_start(), request_start("judge"))
    log = log_of(world, await forked(world, "judge"))[-5:]
    assert kinds(log) == ["span_model_request_end", "span_model_request_end", *CLOSING]
    ends = [event.span_model_request_end.model_request_start_id for event in log[:2]]
    assert ends == ["judge", "request"]


async def test_a_request_whose_judge_has_ended_is_ended_alone():
    world, _ = turned(
        request_start(), request_start("judge"), request_end("judge"), said("hm", "so")
    )
    log = log_of(world, await forked(world, "so"))[-4:]
    assert kinds(log) == ["span_model_request_end", *CLOSING]
    assert log[0].span_model_request_end.model_request_start_id == "request"


async def test_a_request_that_ended_is_not_ended_again():
    world, _ = turned(request_start(), said("hi"), request_end(), said("after", "last"))
    assert kinds(log_of(world, await forked(world, "last")))[5:] == ["agent_message", *CLOSING]


async def test_threads_get_ids_of_their_own_wherever_events_name_them():
    world = World(message())
    primary = world.state.primary_thread_id
    generation = world.open()
    world.append(generation, running(), thread_running(primary), said(primary), idle(), take=2)
    world.accept(interrupt(primary))
    world.append(generation, idle(), take=2)
    snapshot = await forked(world)
    new = snapshot.state.primary_thread_id
    log = log_of(world, snapshot)
    assert new != primary
    assert log[2].session_thread_status_running.session_thread_id == new
    assert log[3].agent_message.content[0].text.text == primary
    assert log[5].user_interrupt.session_thread_id == new
    threads = world.store.run(lambda tx: tx.threads(snapshot.state.id), keep=False)
    assert [(thread.id, thread.activity.status) for thread in threads] == [(new, Status.IDLE)]


async def test_a_running_session_is_forked_from_its_committed_log_and_goes_on():
    world, generation = turned(said("so far"))
    snapshot = await forked(world)
    world.append(generation, said("and on"), idle(), release=True)
    assert kinds(log_of(world, snapshot)) == [
        "user_message", "session_status_running", "agent_message", *CLOSING,
    ]  # fmt: skip
    assert kinds(world.log)[-2:] == ["agent_message", "session_status_idle"]


async def test_what_waits_in_the_inbox_is_not_copied_and_no_place_to_fork_at():
    world, _ = turned(said("hi"), idle())
    waiting = world.accept(message("later"))[0]
    snapshot = await forked(world)
    assert waiting.id not in {event.id for event in log_of(world, snapshot)}
    assert snapshot.state.waiting.total == 0
    error = await refused(forked(world, waiting.id))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith("event_id: the event waits in the inbox")


async def test_an_event_of_another_session_and_another_workspaces_session_are_refused():
    world, _ = turned(said("hi"))
    other = World(message("x", "elsewhere"))
    other.append(other.open(), running(), take=2)
    error = await refused(forked(world, "elsewhere"))
    assert error.message == "event_id: the session's log has no such event"
    world.ref = other_workspace(world.ref)
    assert (await refused(forked(world))).reason is Reason.NOT_FOUND


async def test_a_fork_of_an_ended_session_is_not_at_its_end():
    world, generation = turned(said("bye", "last"), idle())
    world.append(generation, release=True)
    before = world.log
    world.archive()
    assert kinds(world.log[len(before) :]) == [
        "session_thread_status_terminated", "session_status_terminated",
    ]  # fmt: skip
    for place in (None, world.log[-1].id, world.log[-2].id, before[-1].id):
        snapshot = await forked(world, place)
        assert log_of(world, snapshot) == before
        assert stored(world, snapshot).status is Status.IDLE
        assert stored(world, snapshot).archived_at is None
    threads = world.store.run(lambda tx: tx.threads(snapshot.state.id), keep=False)
    assert threads[0].activity.status is Status.IDLE


async def test_a_session_without_a_log_is_forked_into_one_without_a_log():
    world = World()
    snapshot = await forked(world)
    assert log_of(world, snapshot) == []
    world.archive()
    assert log_of(world, await forked(world)) == []


async def test_title_and_metadata_are_copied_and_the_agent_as_it_was_there():
    world, generation = turned(said("one", "first"), idle())
    world.append(generation, release=True)

    def change(version, **fields):
        before = world.store.run(lambda tx: tx.details(world.ref.session_id), keep=False).agent
        revised = agent_pb2.SessionAgent()
        revised.CopyFrom(before)
        revised.version = version
        request = session_service_pb2.UpdateSessionRequest(session_id="x", agent={}, **fields)
        world.update(request, revised=revised, revised_from=before)
        return world.log[-1].id

    updated = change(7, title="Flock", metadata=metadata_pb2.MetadataPatch(set={"a": "b"}))
    change(8)
    snapshot = await forked(world, updated)
    assert (snapshot.details.title, snapshot.details.metadata) == ("Flock", {"a": "b"})
    assert (snapshot.details.agent.version, snapshot.state.agent_version) == (7, 7)
    assert (await forked(world)).details.agent.version == 8
    # What it was before the first change nobody kept.
    assert (await forked(world, "first")).details.agent.version == 8


async def test_a_confirmation_that_was_taken_does_not_answer_for_the_fork():
    world, generation = turned(tool_use("call", ASK), idle("call"))
    world.accept(confirmation("call"))
    world.append(generation, running(), take=2)
    taken = next(event for event in world.log if event.HasField("user_tool_confirmation"))
    for place in ("call", taken.id):
        snapshot = await forked(world, place)
        assert kinds(log_of(world, snapshot))[-4:] == ["agent_tool_result", *CLOSING]
        assert snapshot.state.unanswered == 0
