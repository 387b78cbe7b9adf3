"""Exporting a session and importing it elsewhere: the same again, or nothing."""

from __future__ import annotations

import copy

import pytest

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2, usage_pb2
from drover.session.v1 import session_pb2, transfer_pb2
from services.session.domain import exporting
from services.session.domain.event import CallKind
from services.session.domain.ports import Call, CallState
from services.session.domain.session import SessionRef, Status
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
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_transfer import exported, imported
from tests.doubles.session_world import WORKSPACE, ManualClock, World, kinds, other_workspace

UNKNOWN = b"\xba\x3e\x03new"  # field 1,000


@pytest.fixture
def elsewhere():
    """The store of another installation."""
    return MemoryStore(ManualClock())


def thread_idle(thread_id):
    event = event_pb2.Event()
    event.session_thread_status_idle.session_thread_id = thread_id
    return event


def worked():
    """A session with a turn behind it, in which everything happened that leaves a trace."""
    world = World(message("hello", "asked"))
    primary = world.state.primary_thread_id
    generation = world.open()
    world.append(generation, running(), thread_running(primary), take=2)
    world.append(
        generation,
        tool_use("ran"),
        tool_use("confirmed", ASK),
        custom_use("answered"),
        tool_result("ran", event_id="result"),
        thread_idle(primary),
        idle("confirmed", "answered"),
        usage=usage_pb2.UsageSnapshot(input_tokens=7, output_tokens=3),
    )
    world.clock.move(2.5)
    world.accept(custom_result("answered"), confirmation("confirmed"))
    world.append(generation, running(), thread_running(primary), take=2)
    world.append(generation, tool_result("confirmed"), said("done"), thread_idle(primary), idle())
    world.append(generation, release=True)
    return world


async def refused(call):
    with pytest.raises(DroverError) as caught:
        await call
    return caught.value


async def test_an_imported_session_is_the_exported_one(elsewhere):
    world = worked()
    records = exported(world.store, world.ref)
    state = await imported(elsewhere, copy.deepcopy(records), "wrkspc_there")
    ref = SessionRef("wrkspc_there", world.ref.session_id)
    assert exported(elsewhere, ref) == records

    def everything(store, ref):
        one, ids = ref.session_id, ["ran", "confirmed", "answered"]
        return store.run(lambda tx: (tx.details(one), tx.threads(one), tx.calls(one, ids)))

    assert everything(elsewhere, ref) == everything(world.store, world.ref)
    before = world.state
    assert state.workspace_id == "wrkspc_there"
    state.workspace_id, state.inbox_tail = before.workspace_id, before.inbox_tail
    assert state == before
    assert state.usage
    assert elsewhere.run(lambda tx: tx.needs(9)) == []


async def test_an_export_is_of_one_moment():
    world = worked()
    store, ref = world.store, world.ref
    before = exported(store, ref)
    assert kinds(record.event for record in before[1:-1]) == kinds(world.log)
    # What comes after the beginning is not in it, though it is read piece by piece.
    export = store.run(lambda tx: exporting.begin(tx, ref), keep=False)
    world.accept(message("later"))
    page, export = store.run(lambda tx: exporting.advance(tx, ref, export), keep=False)
    assert [page, export.next] == [before[1:-1], None]
    assert exporting.end(export) == before[-1]


async def test_what_waited_at_that_moment_is_told_as_waiting_though_it_was_taken_since():
    world = worked()
    store, ref = world.store, world.ref
    world.accept(message("later", "waits"))
    export = store.run(lambda tx: exporting.begin(tx, ref), keep=False)
    generation = world.open()
    world.append(generation, take=2)
    page, _ = store.run(lambda tx: exporting.advance(tx, ref, export), keep=False)
    assert page[-1].waiting == message("later", "waits")
    assert export.snapshot.waiting == 1
    assert export.snapshot.events == len(page) - 1


async def test_messages_that_wait_for_answers_are_imported_and_wake_nobody(elsewhere):
    world = World(message("hello"), message("and", "waits"))
    generation = world.open()
    world.append(generation, running(), custom_use("call"), idle("call"), take=2)
    world.append(generation, release=True)
    assert world.state.status is Status.IDLE
    records = exported(world.store, world.ref)
    assert records[-2].waiting.id == "waits"
    state = await imported(elsewhere, copy.deepcopy(records))
    assert exported(elsewhere, world.ref) == records
    assert (state.unanswered, state.waiting.messages, state.needs_brain) == (1, 1, False)
    calls = elsewhere.run(lambda tx: tx.calls(state.id, ["call"]))
    assert calls == {"call": Call("call", CallKind.CUSTOM)}
    world.store = elsewhere
    world.accept(custom_result("call"))
    assert world.state.needs_brain


async def test_an_archived_session_is_imported_as_archived(elsewhere):
    world = worked()
    world.archive()
    records = exported(world.store, world.ref)
    await imported(elsewhere, copy.deepcopy(records))
    assert exported(elsewhere, world.ref) == records
    world.store = elsewhere
    assert world.state.ended
    assert world.state.archived_at


async def test_fields_that_this_release_does_not_know_travel_along(elsewhere):
    world = worked()
    records = exported(world.store, world.ref)
    records[0] = transfer_pb2.SessionRecord.FromString(records[0].SerializeToString())
    raw = records[1].event.SerializeToString() + UNKNOWN
    records[1].event.ParseFromString(raw)
    session = records[0].session
    session.agent.ParseFromString(session.agent.SerializeToString() + UNKNOWN)
    await imported(elsewhere, copy.deepcopy(records))
    again = exported(elsewhere, world.ref)
    assert [record.SerializeToString() for record in again] == [
        record.SerializeToString() for record in records
    ]
    assert UNKNOWN in again[1].event.SerializeToString()


async def test_an_event_of_a_type_that_this_release_does_not_know_is_kept(elsewhere):
    world = worked()
    records = exported(world.store, world.ref)
    new = event_pb2.Event.FromString(event_pb2.Event(id="new").SerializeToString() + UNKNOWN)
    insert(records, 8, new)
    state = await imported(elsewhere, copy.deepcopy(records))
    assert exported(elsewhere, state.ref) == records


async def test_a_session_that_runs_can_be_exported_but_not_imported(elsewhere):
    amid = World(message("hello"))
    amid.append(amid.open(), running(), take=2)
    about_to = worked()
    about_to.accept(message("again"))
    for world in (World(message("not yet")), amid, about_to):
        records = exported(world.store, world.ref)
        assert records[0].session.status == session_pb2.SESSION_STATUS_RUNNING
        error = await refused(imported(elsewhere, records))
        assert error.reason is Reason.SESSION_RUNNING
        assert "user.interrupt" in error.message
        # Nor does it help to say that it was idle.
        records[0].session.status = session_pb2.SESSION_STATUS_IDLE
        records[0].session.activity.status = session_pb2.SESSION_STATUS_IDLE
        records[0].session.activity.ClearField("running_since")
        assert (await refused(imported(MemoryStore(ManualClock()), records))).reason in {
            Reason.SESSION_RUNNING, Reason.INVALID_ARGUMENT,
        }  # fmt: skip


async def test_a_session_that_is_there_already_is_a_conflict():
    world = worked()
    records = exported(world.store, world.ref)
    for workspace in (WORKSPACE, "wrkspc_other"):
        error = await refused(imported(world.store, copy.deepcopy(records), workspace))
        assert error.reason is Reason.CONFLICT
    assert exported(world.store, world.ref) == records


def change_event(place, **fields):
    def change(records):
        for name, value in fields.items():
            setattr(records[place].event, name, value)

    return change


def swap(one, other):
    def change(records):
        records[one], records[other] = records[other], records[one]

    return change


def later(records):
    records[5].event.processed_at.seconds += 10


def in_the_future(records):
    for record in records[1:-1]:
        record.event.processed_at.seconds += 90_000 * 100


def too_fine(records):
    records[3].event.processed_at.nanos += 1


def unstamped(records):
    records[3].event.ClearField("processed_at")


def second_result(records):
    again = copy.deepcopy(records[7])
    again.event.id = "again"
    insert(records, 8, again.event)


def insert(records, place, event):
    for record in records[place:-1]:
        record.event.seq += 1
    event.seq = place
    event.processed_at.CopyFrom(records[place].event.processed_at)
    records.insert(place, transfer_pb2.SessionRecord(event=event))
    records[0].session.events += 1
    records[-1].end.events += 1


def result_of_nothing(records):
    insert(records, 8, tool_result("nowhere", event_id="new"))


def confirmation_of_nothing(records):
    event = confirmation("ran")
    event.id = "new"
    insert(records, 8, event)


def deleted(records):
    event = event_pb2.Event(id="new")
    event.session_deleted.SetInParent()
    insert(records, 8, event)


def waits_for_a_brain(records):
    event = interrupt()
    event.id = "new"
    records.insert(-1, transfer_pb2.SessionRecord(waiting=event))
    records[0].session.waiting = records[-1].end.waiting = 1


def waits_with_a_position(records):
    records.insert(-1, transfer_pb2.SessionRecord(waiting=event_pb2.Event(id="new", seq=1)))


def waits_though_it_never_would(records):
    records.insert(-1, transfer_pb2.SessionRecord(waiting=said("hi", "new")))


def cut(records):
    del records[-2]


def cut_and_counted(records):
    del records[-2]
    records[-1].end.events -= 1


def say(**fields):
    def change(records):
        session = records[0].session
        for name, value in fields.items():
            target, *rest = name.split("__")
            if rest:
                setattr(getattr(session, target), rest[0], value)
            else:
                setattr(session, target, value)

    return change


def forked_from_behind_its_end(records):
    records[0].session.forked_from.session_id = "sesn_0"
    records[0].session.forked_from.seq = 1000


def two_primary_threads(records):
    again = records[0].session.threads.add()
    again.CopyFrom(records[0].session.threads[0])
    again.thread_id = "sthr_again"


def one_thread_twice(records):
    records[0].session.threads.add().CopyFrom(records[0].session.threads[0])


def an_orphan(records):
    orphan = records[0].session.threads.add()
    orphan.CopyFrom(records[0].session.threads[0])
    orphan.thread_id, orphan.parent_thread_id = "sthr_orphan", "sthr_nobody"


def another_thread_status(records):
    activity = records[0].session.threads[0].activity
    activity.status = session_pb2.SESSION_STATUS_TERMINATED
    activity.ended_at.seconds = 1


def packaged(records):
    cloud = records[0].session.environment.cloud
    cloud.sandbox = "local"
    cloud.packages.apt.append("jq")


HOSTILE = {
    "a gap": (change_event(4, seq=9), "event 4: its position is 9"),
    "no position": (change_event(4, seq=0), "event 4: its position is 0"),
    "two in the wrong order": (swap(3, 4), "event 3: its position is 4"),
    "an id that is there twice": (change_event(4, id="asked"), "event: two events have the same"),
    "no id": (change_event(4, id=""), "event: an id has"),
    "an id of two lines": (change_event(4, id="a\nid: b"), "event: an id has"),
    "an id that is too long": (change_event(4, id="x" * 129), "event: an id has"),
    "a time before the one before": (later, "event 6: its time lies before"),
    "times to come": (in_the_future, "event 1: its time lies in the future"),
    "a time that is too fine": (too_fine, "event 3: processed_at: is finer"),
    "no time": (unstamped, "event 3: processed_at: is missing"),
    "a second result": (second_result, "event 8: is a result of ran"),
    "a result of nothing": (result_of_nothing, "event 8: is a result of nowhere"),
    "a confirmation of nothing": (confirmation_of_nothing, "event 8: confirms a call"),
    "the session's deletion": (deleted, "event 8: session.deleted"),
    "input that wakes a brain": (waits_for_a_brain, "the session ran when it was exported"),
    "a waiting event with a position": (waits_with_a_position, "waiting event 1: an event of an"),
    "a waiting event of the agent": (waits_though_it_never_would, "waiting event 1: agent.message"),
    "an event less": (cut, "events: "),
    "an event less, and so counted": (cut_and_counted, "events: "),
    "another status": (
        say(status=session_pb2.SESSION_STATUS_TERMINATED),
        "session.activity.status: is not",
    ),
    "another stop": (
        lambda records: records[0].session.stop_reason.refusal.SetInParent(),
        "session.stop_reason: ",
    ),
    "an archive of what is not terminated": (say(archived_at__seconds=9), "session.archived_at: "),
    "no creation": (
        lambda records: records[0].session.ClearField("created_at"), "session.created_at: is miss",
    ),
    "a creation that is too fine": (say(created_at__nanos=1), "session.created_at: is finer"),
    "a time that it cannot have run": (
        lambda records: setattr(records[0].session.activity.active_time, "seconds", -1),
        "session.activity.active_time: ",
    ),
    "running though idle": (
        lambda records: records[0].session.activity.running_since.FromSeconds(5),
        "session.activity.running_since: ",
    ),
    "ended though idle": (
        lambda records: records[0].session.activity.ended_at.FromSeconds(5),
        "session.activity.ended_at: ",
    ),
    "an agent with an id that is none": (
        lambda records: setattr(records[0].session.agent, "id", "a\0b"),
        "session.agent: ",
    ),
    "an agent without a model": (
        lambda records: records[0].session.agent.ClearField("model"), "session.agent: ",
    ),
    "a fork from behind its end": (forked_from_behind_its_end, "session.forked_from: "),
    "two primary threads": (two_primary_threads, "session.threads.1: "),
    "one thread twice": (one_thread_twice, "session.threads: two threads"),
    "a thread without its parent": (an_orphan, "session.threads.1.parent_thread_id: "),
    "another status of a thread": (another_thread_status, "session.threads: the log says"),
    "an environment that nothing provides": (packaged, "session.environment: the environment"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_no_session_could_be_is_refused_and_leaves_nothing(name, elsewhere):
    change, text = HOSTILE[name]
    world = worked()
    records = exported(world.store, world.ref)
    change(records)
    error = await refused(imported(elsewhere, records))
    assert error.reason in {Reason.INVALID_ARGUMENT, Reason.SESSION_RUNNING}
    assert error.message.startswith(text)
    for ref in (world.ref, other_workspace(world.ref)):
        assert elsewhere.run(lambda tx, ref=ref: tx.state(ref)) is None


async def test_a_call_that_was_confirmed_is_open_to_its_result(elsewhere):
    world = World(message("hello"))
    generation = world.open()
    world.append(generation, running(), tool_use("a", ASK), tool_use("b", ASK), take=2)
    world.append(generation, idle("a", "b"), release=True)
    world.accept(confirmation("a"))
    generation = world.open()
    world.append(generation, take=1)
    records = exported(world.store, world.ref)
    assert records[0].session.status == session_pb2.SESSION_STATUS_RUNNING
    records[0].session.status = session_pb2.SESSION_STATUS_IDLE
    state = await imported(elsewhere, records)
    calls = elsewhere.run(lambda tx: tx.calls(state.id, ["a", "b"]))
    assert [calls[one].state for one in "ab"] == [CallState.ANSWERED, CallState.OPEN]
    assert state.unanswered == 1
