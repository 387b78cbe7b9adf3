"""Sessions whose tools the workers of their environment run (SEMANTICS §18)."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from services.session.domain.event import CallKind
from services.session.domain.listing import EventsQuery, list_events
from services.session.domain.ports import CallState
from services.session.domain.session import Status, Stop
from tests.doubles.session_events import (
    ALLOW,
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
    system_message,
    tool_result,
    tool_use,
    worker_result,
)
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_transfer import exported, forked, imported
from tests.doubles.session_world import World, kinds


def waiting_for(*calls, self_hosted=True):
    """A session idle on `requires_action` for calls that its brain has opened."""
    world = World(message(), self_hosted=self_hosted)
    generation = world.open()
    world.append(generation, running(), take=lease_pb2.TAKE_INPUT_NEXT)
    ids = [call.id for call in calls]
    assert world.append(generation, *calls, idle(*ids), release=True).released
    return world


def refused(world, *events):
    before = world.state
    with pytest.raises(DroverError) as caught:
        world.accept(*events)
    assert world.state == before
    return caught.value


def call(world, call_id):
    return world.store.run(
        lambda tx: tx.calls(world.ref.session_id, [call_id])[call_id], keep=False
    )


def results(world):
    return [event for event in world.log if event.HasField("user_tool_result")]


def test_a_workers_result_enters_the_log_at_once_and_wakes_a_brain():
    world = waiting_for(tool_use("c1"))
    assert world.state.unanswered == 1
    assert not world.state.needs_brain
    [stored] = world.accept(worker_result("c1"))
    assert stored.HasField("processed_at")
    assert stored.seq == world.state.head_seq
    assert world.state.unanswered == 0
    assert world.state.needs_brain
    assert world.news[-1].wake
    assert call(world, "c1").state is CallState.CLOSED


@pytest.mark.parametrize("name", ["bash", "read", "write", "edit", "glob", "grep"])
def test_every_tool_of_the_sandbox_is_a_workers(name):
    world = waiting_for(tool_use("c1", ALLOW, name))
    assert call(world, "c1").kind is CallKind.SELF_HOSTED


@pytest.mark.parametrize("name", ["web_search", "web_fetch", "session_history"])
def test_what_the_server_runs_itself_is_no_workers(name):
    world = World(message(), self_hosted=True)
    generation = world.open()
    world.append(generation, running(), tool_use("c1", ALLOW, name), take=2)
    assert call(world, "c1").kind is CallKind.ALLOW
    assert world.state.unanswered == 0
    assert "no such call for a worker" in refused(world, worker_result("c1")).message


def test_results_of_workers_are_for_self_hosted_environments_only():
    world = waiting_for(custom_use("c1"), self_hosted=False)
    error = refused(world, worker_result("c1"))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message == "events.0.type: user.tool_result needs a self_hosted environment"


def test_the_second_result_is_taken_without_effect():
    world = waiting_for(tool_use("c1"))
    [first] = world.accept(worker_result("c1", "first"))
    before = world.state
    [again] = world.accept(worker_result("c1", "second"))
    assert again == first
    assert world.state == before
    [kept] = results(world)
    assert kept.user_tool_result.content[0].text.text == "first"


def test_of_two_results_in_one_request_the_first_counts():
    world = waiting_for(tool_use("c1"))
    first, second = world.accept(worker_result("c1", "first"), worker_result("c1", "second"))
    assert first == second
    assert len(results(world)) == 1


@pytest.mark.parametrize(
    ("result", "field"),
    [
        (worker_result("nowhere"), "tool_use_id"),
        (worker_result("custom"), "tool_use_id"),
        (worker_result("denied"), "tool_use_id"),
        (custom_result("c1"), "custom_tool_use_id"),
    ],
)
def test_a_result_for_a_call_of_another_kind_is_refused(result, field):
    world = World(message(), self_hosted=True)
    generation = world.open()
    calls = tool_use("c1"), tool_use("denied", DENY), custom_use("custom")
    world.append(generation, running(), *calls, take=2)
    error = refused(world, result)
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith(f"events.0.{field}: ")


def test_a_result_is_refused_while_its_call_waits_for_a_confirmation():
    world = waiting_for(tool_use("c1", ASK))
    error = refused(world, worker_result("c1"))
    assert (
        error.message == "events.0.tool_use_id: the call waits for a user.tool_confirmation first"
    )


def test_a_call_that_was_allowed_waits_for_its_worker():
    world = waiting_for(tool_use("c1", ASK))
    world.accept(confirmation("c1"))
    assert call(world, "c1").with_worker
    assert world.state.unanswered == 1
    assert world.state.needs_brain  # for it is to be told of
    generation = world.open()
    world.append(generation, take=lease_pb2.TAKE_INPUT_CONFIRMATIONS)
    assert world.append(generation, idle("c1"), release=True).released
    assert world.state.stop is Stop.REQUIRES_ACTION
    world.accept(worker_result("c1"))
    assert world.state.unanswered == 0
    assert world.state.needs_brain


def test_a_worker_that_is_quicker_than_the_brain_answers_what_was_allowed():
    world = waiting_for(tool_use("c1", ASK))
    world.accept(confirmation("c1"))
    world.accept(worker_result("c1"))
    assert world.state.unanswered == 0
    generation = world.open()
    ack = world.append(generation, take=lease_pb2.TAKE_INPUT_CONFIRMATIONS)
    assert kinds(ack.taken) == ["user_tool_confirmation"]
    assert call(world, "c1").state is CallState.CLOSED


def test_a_second_confirmation_has_no_effect_while_the_worker_is_at_it():
    world = waiting_for(tool_use("c1", ASK))
    world.accept(confirmation("c1"))
    before = world.state
    world.accept(confirmation("c1", allow=False))
    assert world.state == before
    assert call(world, "c1").with_worker


def test_a_denied_call_waits_for_nobody_and_takes_a_result_without_effect():
    world = waiting_for(tool_use("c1", ASK))
    world.accept(confirmation("c1", allow=False))
    assert world.state.unanswered == 0
    before = world.state
    world.accept(worker_result("c1"))
    assert world.state == before
    generation = world.open()
    world.append(generation, running(), tool_result("c1", "denied"), take=4)
    assert call(world, "c1").state is CallState.CLOSED


def test_a_message_is_refused_while_a_worker_is_waited_for():
    world = waiting_for(tool_use("c1"))
    assert "waits for the answers to 1 tool call" in refused(world, message()).message
    world.accept(interrupt(), message())


def test_a_release_is_refused_once_the_worker_has_answered():
    world = World(message(), self_hosted=True)
    generation = world.open()
    world.append(generation, running(), tool_use("c1"), take=2)
    world.accept(worker_result("c1"))
    assert world.append(generation, idle("c1"), release=True).input_pending
    assert world.append(generation, said("thanks"), idle(), release=True).released


def test_a_brain_settles_a_call_that_it_stops_as_its_worker_would():
    world = waiting_for(tool_use("c1"), tool_use("c2", ASK), custom_use("c3"))
    world.accept(interrupt())
    generation = world.open()
    stopped = worker_result("c1", "stopped"), worker_result("c2", "stopped")
    world.append(generation, *stopped, custom_result("c3", "stopped"))
    assert world.append(generation, idle(), take=1, release=True).released
    assert world.state.unanswered == 0
    [late] = world.accept(worker_result("c1", "late"))
    assert late.user_tool_result.content[0].text.text == "stopped"
    assert len(results(world)) == 2


@pytest.mark.parametrize(
    ("call", "result", "self_hosted"),
    [
        (tool_use("c1"), worker_result("c1"), False),
        (custom_use("c1"), custom_result("c1"), False),
        (custom_use("c1"), worker_result("c1"), True),
        (tool_use("c1", ALLOW, "session_history"), worker_result("c1"), True),
    ],
)
def test_a_brain_settles_no_other_call_so(call, result, self_hosted):
    world = World(message(), self_hosted=self_hosted)
    generation = world.open()
    world.append(generation, running(), call, take=2)
    with pytest.raises(DroverError, match="no worker answers the call c1"):
        world.append(generation, result)


def test_the_first_of_a_workers_result_and_a_brains_is_the_one_that_is_kept():
    world = World(message(), self_hosted=True)
    generation = world.open()
    world.append(generation, running(), tool_use("c1"), take=2)
    world.accept(worker_result("c1", "worked"))
    world.append(generation, worker_result("c1", "stopped"))
    [kept] = results(world)
    assert kept.user_tool_result.content[0].text.text == "worked"


def test_a_system_message_goes_with_a_workers_result():
    world = waiting_for(tool_use("c1"))
    world.accept(worker_result("c1"), system_message())
    assert kinds(world.log)[-2:] == ["user_tool_result", "system_message"]


def test_blocks_that_a_result_cannot_hold_are_refused_by_path():
    world = waiting_for(tool_use("c1"))
    event = worker_result("c1")
    event.user_tool_result.content.add().redacted.SetInParent()
    assert refused(world, event).message.startswith("events.0.content.1.type: ")
    event = worker_result("c1")
    event.user_tool_result.content.add().image.source.base64.data = "not base64"
    assert refused(world, event).message.startswith("events.0.content.1.source.data: ")


@pytest.mark.parametrize("kind", ["image", "document"])
def test_a_result_may_hold_an_empty_file(kind):
    """Refused, the official worker would leave the call open, and stay with it."""
    world = waiting_for(tool_use("c1"))
    event = worker_result("c1")
    getattr(event.user_tool_result.content.add(), kind).source.base64.media_type = "x/y"
    [stored] = world.accept(event)
    assert len(stored.user_tool_result.content) == 2


def test_a_result_may_say_that_the_tool_failed_and_hold_what_searches_find():
    world = waiting_for(tool_use("c1"))
    event = worker_result("c1")
    event.user_tool_result.is_error = True
    event.user_tool_result.content.add().search_result.title = "found"
    [stored] = world.accept(event)
    assert stored.user_tool_result.is_error


def test_the_thread_of_a_result_is_not_the_clients_to_say():
    world = waiting_for(tool_use("c1"))
    event = worker_result("c1")
    event.user_tool_result.session_thread_id = "sthr_else"
    [stored] = world.accept(event)
    assert not stored.user_tool_result.HasField("session_thread_id")


def test_archiving_a_self_hosted_session_asks_nothing_of_the_hands():
    for self_hosted, asked in ((True, 0), (False, 1)):
        world = World(self_hosted=self_hosted)
        world.archive()
        found = world.store.run(lambda tx: tx.lease_releases(10, 1), keep=False)
        assert len(found) == asked


def test_a_deleted_sessions_secrets_go_whoever_ran_its_tools():
    for self_hosted in (True, False):
        world = World(self_hosted=self_hosted)
        world.delete()
        [found] = world.store.run(lambda tx: tx.lease_releases(10, 1), keep=False)
        assert found.purge
        assert found.secrets


async def test_a_fork_settles_the_calls_that_waited_for_a_worker():
    world = waiting_for(tool_use("c1"), tool_use("c2", ASK), custom_use("c3"))
    world.accept(confirmation("c2"))
    fork = await forked(world)
    assert fork.state.self_hosted
    assert fork.state.unanswered == 0
    page = world.store.run(
        lambda tx: list_events(tx, fork.state.ref, EventsQuery(limit=100), None), keep=False
    )
    settled = [kind for kind in kinds(page.events) if kind.endswith("tool_result")]
    assert settled == ["user_tool_result", "user_tool_result", "user_custom_tool_result"]


async def test_an_imported_session_waits_for_the_workers_it_waited_for():
    world = waiting_for(tool_use("c1"), tool_use("c2", ASK))
    world.accept(confirmation("c2"))
    generation = world.open()
    world.append(generation, take=lease_pb2.TAKE_INPUT_CONFIRMATIONS)
    world.append(generation, idle("c1", "c2"), release=True)
    elsewhere = MemoryStore(world.clock)
    state = await imported(elsewhere, exported(world.store, world.ref))
    assert state.self_hosted
    assert state.unanswered == 2
    assert state.activity.status is Status.IDLE
    found = elsewhere.run(lambda tx: tx.calls(state.id, ["c1", "c2"]), keep=False)
    assert all(one.with_worker for one in found.values())
