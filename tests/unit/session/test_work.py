"""A work item goes its way from queued to stopped, and back while it is needed (SEMANTICS §18)."""

from __future__ import annotations

import dataclasses
import json

import pytest

from chassis.errors import DroverError, Reason
from drover.api.v1.metadata_pb2 import MetadataPatch
from services.session.domain import queue
from services.session.domain.session import MICROS, Activity, SessionRef, Status
from services.session.domain.work import (
    LONGEST_LEASE_SECONDS,
    STOPPING_MICROS,
    WorkItem,
    WorkState,
    check_stoppable,
    needs_worker,
)
from tests.doubles.session_rows import state

RECLAIM = 5 * MICROS


def item(now=100, **fields):
    return WorkItem("work_1", SessionRef("w", "sesn_1"), "env_1", now, now, **fields)


def acknowledged(ttl=300):
    one = item()
    one.hand_out(b"digest", "worker", 200)
    one.acknowledge(300, ttl)
    return one


def active():
    one = acknowledged()
    assert one.beat("NO_HEARTBEAT", 400, 300)
    return one


def refused(call, *given):
    with pytest.raises(DroverError) as refusal:
        call(*given)
    return refusal.value


def test_a_polled_item_is_its_workers_for_a_while():
    one = item()
    assert one.is_free(100, RECLAIM)
    one.hand_out(b"digest", "worker", 200)
    assert not one.is_free(200 + RECLAIM - 1, RECLAIM)
    assert one.is_free(200 + RECLAIM, RECLAIM)
    assert (one.state, one.token, one.worker_id) == (WorkState.QUEUED, b"digest", "worker")


def test_a_second_poll_makes_the_first_ones_token_void():
    one = item()
    one.hand_out(b"first", "a", 200)
    one.hand_out(b"second", "b", 300)
    assert (one.token, one.worker_id, one.handed_at) == (b"second", "b", 300)


def test_acknowledged_item_starts_with_a_lease_and_is_not_free():
    one = acknowledged(ttl=7)
    assert (one.state, one.acknowledged_at) == (WorkState.STARTING, 300)
    assert (one.lease_expires_at, one.ttl_seconds) == (300 + 7 * MICROS, 7)
    assert not one.is_free(10**15, RECLAIM)


def test_what_nobody_polled_is_not_acknowledged():
    error = refused(item().acknowledge, 200, 300)
    assert (error.reason, error.rule.http) == (Reason.CONFLICT, 409)


def test_what_was_polled_once_is_acknowledged_once():
    assert refused(acknowledged().acknowledge, 400, 300).reason is Reason.CONFLICT


def test_both_of_two_workers_that_polled_may_acknowledge():
    one = item()
    one.hand_out(b"first", "a", 200)
    one.hand_out(b"second", "b", 300)
    one.acknowledge(400, 300)
    one.acknowledge(500, 300)
    assert (one.state, one.acknowledged_at) == (WorkState.STARTING, 400)
    assert refused(one.acknowledge, 600, 300).reason is Reason.CONFLICT


def test_first_heartbeat_makes_it_active():
    one = acknowledged()
    assert one.beat("NO_HEARTBEAT", 400, 300)
    assert (one.state, one.started_at, one.heartbeat_at) == (WorkState.ACTIVE, 400, 400)
    assert one.last_heartbeat == "1970-01-01T00:00:00.000400Z"


def test_the_next_heartbeat_names_the_last_one():
    one = active()
    assert one.beat(one.last_heartbeat, 500 + MICROS, 60)
    assert one.lease_expires_at == 500 + 61 * MICROS
    assert one.started_at == 400


def test_no_two_heartbeats_are_alike():
    one = active()
    first = one.last_heartbeat
    assert one.beat(first, 400, 300)
    assert one.last_heartbeat != first


@pytest.mark.parametrize("expected", ["NO_HEARTBEAT", "1970-01-01T00:00:00.000399Z", "", "x"])
def test_another_heartbeat_than_the_last_is_refused_with_the_lease_as_it_is(expected):
    one = active()
    before = dataclasses.replace(one)
    error = refused(one.beat, expected, 500, 300)
    assert one == before
    assert error.error_code == "heartbeat_precondition_failed"
    assert json.loads(error.metadata["current_state"]) == {
        "last_heartbeat": "1970-01-01T00:00:00.000400Z",
        "lease_extended": False,
        "state": "active",
        "ttl_seconds": 300,
    }


def test_heartbeat_that_expects_nothing_is_taken():
    assert active().beat(None, 500, 300)


def test_a_queued_item_takes_no_heartbeat_whatever_is_expected():
    one = item()
    one.hand_out(b"digest", "worker", 200)
    for expected in (None, "NO_HEARTBEAT"):
        current = json.loads(refused(one.beat, expected, 300, 300).metadata["current_state"])
        assert (current["state"], current["last_heartbeat"]) == ("queued", None)


def test_a_lease_is_an_hour_at_most_and_says_so():
    one = active()
    one.beat(None, 500, 10**6)
    assert one.ttl_seconds == LONGEST_LEASE_SECONDS
    assert one.lease_expires_at == 500 + LONGEST_LEASE_SECONDS * MICROS


@pytest.mark.parametrize("how", [WorkItem.request_stop, WorkItem.stop])
def test_ending_item_prolongs_nothing_and_compares_nothing(how):
    one = active()
    how(one, 500)
    before = dataclasses.replace(one)
    assert not one.beat("whatever", 600, 300)
    assert one == before


def test_a_worker_that_is_asked_to_stop_has_a_minute_for_it():
    one = active()
    one.request_stop(500)
    assert (one.state, one.stop_requested_at) == (WorkState.STOPPING, 500)
    assert one.lease_expires_at == 500 + STOPPING_MICROS
    one.request_stop(900)
    assert (one.stop_requested_at, one.lease_expires_at) == (500, 500 + STOPPING_MICROS)


def test_a_short_lease_is_not_prolonged_by_the_wish_to_stop():
    one = acknowledged(ttl=1)
    one.request_stop(500)
    assert one.lease_expires_at == 300 + MICROS


def test_a_stopped_item_keeps_its_token_and_has_no_lease():
    one = active()
    one.stop(500)
    assert (one.state, one.stopped_at, one.stop_requested_at) == (WorkState.STOPPED, 500, 500)
    assert (one.token, one.lease_expires_at) == (b"digest", None)
    assert refused(check_stoppable, one).reason is Reason.CONFLICT


def test_item_that_is_queued_again_has_nothing_of_its_worker():
    one = active()
    one.metadata["team"] = "blue"
    one.request_stop(500)
    one.queue_again(600)
    assert one == dataclasses.replace(item(), queued_at=600, metadata={"team": "blue"})


def hosted(**fields):
    return state(self_hosted=True, **fields)


def test_a_session_that_runs_or_waits_for_an_answer_needs_a_worker():
    running = Activity(Status.RUNNING, running_since=1)
    assert needs_worker(hosted(needs_brain=True))
    assert needs_worker(hosted(needs_brain=True, activity=running))
    assert needs_worker(hosted(unanswered=1))


def test_a_session_at_rest_or_at_its_end_or_in_the_cloud_needs_none():
    ended = Activity(Status.TERMINATED, ended_at=1)
    assert not needs_worker(hosted())
    assert not needs_worker(hosted(unanswered=1, activity=ended))
    assert not needs_worker(hosted(unanswered=1, archived_at=1))
    assert not needs_worker(state(needs_brain=True, unanswered=1))


@pytest.mark.parametrize("force", [True, False])
def test_stopping_what_waits_needs_no_worker(force):
    one = item()
    queue.stop(one, hosted(needs_brain=True), 500, force=force)
    assert one.state is WorkState.STOPPED


def test_stop_is_a_wish_to_a_worker_and_force_is_none():
    one, other = active(), active()
    queue.stop(one, hosted(unanswered=1), 500, force=False)
    assert one.state is WorkState.STOPPING
    queue.stop(other, hosted(), 500, force=True)
    assert other.state is WorkState.STOPPED


def test_item_that_is_stopped_with_an_open_call_is_queued_again():
    one = active()
    queue.stop(one, hosted(unanswered=1), 500, force=True)
    assert (one.state, one.queued_at, one.token) == (WorkState.QUEUED, 500, None)
    assert one.is_free(500, RECLAIM)


def test_item_that_is_given_back_undone_again_and_again_rests_for_longer_and_longer():
    one, rests = active(), []
    for _ in range(12):
        one.state = WorkState.ACTIVE
        queue.stop(one, hosted(unanswered=1, head_seq=8), 500, force=True)
        rests.append(max(0, one.free_at - 500) // MICROS)
    assert rests == [0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert not one.is_free(500, RECLAIM)
    assert one.is_free(500 + 30 * MICROS, RECLAIM)
    one.state = WorkState.ACTIVE
    queue.stop(one, hosted(unanswered=1, head_seq=9), 500, force=True)
    assert (one.setbacks, one.is_free(500, RECLAIM)) == (0, True)


def patched(one, **change):
    queue.patch(one, MetadataPatch(**change))
    return one.metadata


def test_metadata_is_patched_key_by_key():
    one = item(metadata={"a": "1", "b": "2"})
    assert patched(one, set={"b": "3", "c": ""}, remove=["a", "z"]) == {"b": "3", "c": ""}


@pytest.mark.parametrize(
    "change",
    [
        {"set": {"k" * 65: "v"}},
        {"set": {"": "v"}},
        {"set": {"k": "v" * 513}},
        {"set": {f"k{number}": "v" for number in range(16)}},
    ],
)
def test_metadata_over_its_limits_is_refused_by_its_code(change):
    one = item(metadata={"a": "1"})
    error = refused(lambda: patched(one, **change))
    assert (error.reason, error.error_code) == (Reason.INVALID_ARGUMENT, "invalid_metadata")
    assert one.metadata == {"a": "1"}
