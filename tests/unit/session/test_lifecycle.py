"""Creating, changing, archiving and deleting sessions."""

from __future__ import annotations

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from chassis.errors import DroverError, Reason
from drover.agent.v1 import agent_pb2
from drover.api.v1 import metadata_pb2
from drover.session.v1 import lease_pb2, session_pb2, session_service_pb2
from services.session.domain import lifecycle, update, view
from services.session.domain.session import Status
from tests.doubles.session_events import custom_use, idle, interrupt, message, running
from tests.doubles.session_world import World, kinds, other_workspace


def change(**fields):
    mask = fields.pop("mask", None)
    request = session_service_pb2.UpdateSessionRequest(session_id="sesn_1", **fields)
    if mask is not None:
        request.update_mask.CopyFrom(FieldMask(paths=mask))
    return request


def refused(call):
    with pytest.raises(DroverError) as caught:
        call()
    return caught.value


def test_a_session_without_input_is_born_idle():
    state = World().state
    assert state.activity.status is Status.IDLE
    assert not state.needs_brain


def test_a_session_with_input_is_born_running_and_wakes_a_brain():
    world = World(message("one"), message("two"))
    assert world.state.activity.status is Status.RUNNING
    assert world.news[0].wake
    assert kinds(world.events()) == ["user_message", "user_message"]


@pytest.mark.parametrize("event", [interrupt(), custom_use("c1")])
def test_initial_events_are_messages_or_nothing_is_created(event):
    error = refused(lambda: World(message(), event))
    assert error.message.startswith("initial_events.1.type: ")


def test_another_workspace_finds_nothing():
    world = World()
    world.ref = other_workspace(world.ref)
    for call in (world.archive, world.delete, world.open, world.events, world.accept):
        assert refused(call).reason is Reason.NOT_FOUND


def test_archive_terminates_the_thread_then_the_session():
    world = World()
    world.archive()
    assert kinds(world.log) == [
        "session_thread_status_terminated",
        "session_status_terminated",
    ]
    assert world.log[0].session_thread_status_terminated.agent_name == "Dolly"
    assert world.state.ended
    assert world.news[-1].ends


def test_archiving_again_changes_nothing():
    world = World()
    world.archive()
    before = world.state
    world.archive()
    assert world.state == before


def test_input_that_waited_for_answers_enters_the_log_when_the_session_is_archived():
    world = World(message("one"), message("two"))
    generation = world.open()
    world.append(generation, running(), custom_use("c1"), take=lease_pb2.TAKE_INPUT_NEXT)
    world.append(generation, idle("c1"), release=True)
    world.archive()
    assert [event.seq for event in world.events()] == [1, 2, 3, 4, 5, 6, 7]
    assert kinds(world.log)[-3] == "user_message"


@pytest.mark.parametrize("verb", ["archive", "delete"])
def test_a_session_that_runs_or_is_about_to_is_left_alone(verb):
    world = World()
    world.accept(message())
    assert refused(getattr(world, verb)).reason is Reason.SESSION_RUNNING
    generation = world.open()
    world.append(generation, running(), take=lease_pb2.TAKE_INPUT_NEXT)
    assert refused(getattr(world, verb)).reason is Reason.SESSION_RUNNING


def test_delete_leaves_nothing_but_a_hand_to_be_released():
    world = World()
    world.delete()
    assert world.state is None
    [release] = world.store.run(lambda tx: tx.lease_releases(10, 0), keep=False)
    assert (release.ref, release.purge) == (world.ref, True)
    assert kinds(world.news[-1].stamped) == ["session_deleted"]
    assert world.news[-1].ends


def test_archive_releases_the_hand_and_keeps_its_workspace():
    world = World()
    world.archive()
    [release] = world.store.run(lambda tx: tx.lease_releases(10, 0), keep=False)
    assert not release.purge


def test_an_update_is_an_event_of_the_log_with_the_changed_fields_only():
    world = World()
    patch = metadata_pb2.MetadataPatch(set={"a.b": "1"})
    snapshot = world.update(change(title="Flock", metadata=patch))
    assert (snapshot.details.title, snapshot.details.metadata) == ("Flock", {"a.b": "1"})
    [event] = world.log
    assert event.session_updated.title == "Flock"
    assert dict(event.session_updated.metadata) == {"a.b": "1"}
    assert not event.session_updated.HasField("agent")
    world.update(change(metadata=metadata_pb2.MetadataPatch(set={"c": "2"}, remove=["a.b"])))
    assert not world.log[1].session_updated.HasField("title")
    assert dict(world.log[1].session_updated.metadata) == {"c": "2"}


def test_an_update_that_changes_nothing_leaves_no_event():
    world = World()
    world.update(change(title="Flock"))
    world.update(change(title="Flock", mask=["title"]))
    world.update(change())
    assert len(world.log) == 1


def test_null_clears_and_absent_keeps():
    world = World()
    world.update(change(title="Flock", metadata=metadata_pb2.MetadataPatch(set={"a": "1"})))
    snapshot = world.update(change(mask=["title"]))
    assert (snapshot.details.title, snapshot.details.metadata) == (None, {"a": "1"})
    assert world.update(change(mask=["metadata"])).details.metadata == {}


def test_metadata_is_bounded_after_the_merge():
    world = World()
    world.update(change(metadata=metadata_pb2.MetadataPatch(set={str(n): "" for n in range(16)})))
    more = change(metadata=metadata_pb2.MetadataPatch(set={"one more": ""}))
    assert refused(lambda: world.update(more)).message.startswith("metadata: ")


def test_title_and_metadata_change_while_the_session_runs_and_the_brain_is_told():
    world = World(message())
    generation = world.open()
    world.append(generation, running())
    world.update(change(title="Flock"))
    assert world.news[-1].input.log_grown
    assert kinds(world.append(generation, running()).others) == ["session_updated"]


def revised(world):
    before = world.store.run(lambda tx: tx.details(world.ref.session_id), keep=False).agent
    after = agent_pb2.SessionAgent()
    after.CopyFrom(before)
    after.tools.add().custom.name = "ask"
    return before, after


def test_the_agents_tools_change_while_the_session_is_idle():
    world = World()
    before, after = revised(world)
    snapshot = world.update(change(), revised=after, revised_from=before)
    assert snapshot.details.agent == after
    assert world.log[0].session_updated.agent == after


def test_the_agents_tools_do_not_change_while_the_session_runs():
    world = World(message())
    before, after = revised(world)
    call = lambda: world.update(change(), revised=after, revised_from=before)  # noqa: E731
    assert refused(call).reason is Reason.SESSION_RUNNING


def test_of_two_changes_of_the_agent_at_once_the_second_is_a_conflict():
    world = World()
    before, after = revised(world)
    world.update(change(), revised=after, revised_from=before)
    call = lambda: world.update(change(), revised=before, revised_from=before)  # noqa: E731
    assert refused(call).reason is Reason.CONFLICT


def test_vaults_are_refused_by_name():
    for request, path in (
        (change(vault_ids=["vlt_1"]), "vault_ids: "),
        (change(mask=["vault_ids"]), "vault_ids: "),
    ):
        assert refused(lambda request=request: update.check(request)).message.startswith(path)


def test_durations_freeze_when_the_session_ends():
    world = World()
    world.clock.move(5)
    world.archive()
    world.clock.move(100)
    snapshot = world.store.run(lambda tx: lifecycle.read(tx, world.ref), keep=False)
    session = view.session(snapshot)
    assert session.stats.duration_seconds == pytest.approx(5)
    assert session.status == session_pb2.SESSION_STATUS_TERMINATED
    assert session.HasField("archived_at")


def test_a_thread_has_stats_and_usage_only_once_it_has_run():
    world = World()

    def primary():
        snapshot = world.store.run(lambda tx: lifecycle.read(tx, world.ref), keep=False)
        [thread] = world.store.run(lambda tx: tx.threads(world.ref.session_id), keep=False)
        return view.thread(thread, snapshot.state, snapshot.details, snapshot.now)

    thread = primary()
    assert not thread.HasField("parent_thread_id")
    assert not thread.HasField("stats")
    assert not thread.HasField("usage")
    assert thread.agent.name == "Dolly"
    world.clock.move(1)
    world.archive()
    assert primary().HasField("stats")
