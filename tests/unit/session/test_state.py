"""A session's state is copied before it is changed."""

from __future__ import annotations

import dataclasses

from services.session.domain.session import Activity, SessionState, Status, Stop, Waiting

FULL = SessionState(
    id="sesn_1",
    workspace_id="workspace",
    agent_id="agent",
    agent_version=1,
    primary_thread_id="sthr_1",
    created_at=2,
    updated_at=3,
    archived_at=4,
    activity=Activity(Status.TERMINATED, 5, 6, 7),
    stop=Stop.REQUIRES_ACTION,
    head_seq=8,
    head_at=9,
    inbox_tail=10,
    waiting=Waiting(11, 12, 13),
    unanswered=14,
    needs_brain=True,
    generation=15,
    holder="brain",
    lease_expires_at=16,
    usage=b"17",
    self_hosted=True,
)


def test_a_copy_has_every_field():
    empty = SessionState("", "", "", 0, "", 0, 0)
    for field in dataclasses.fields(SessionState):
        assert getattr(FULL, field.name) != getattr(empty, field.name), f"FULL has no {field.name}"
    assert FULL.copy() == FULL


def test_what_is_done_to_a_copy_does_not_reach_the_state():
    before = dataclasses.asdict(FULL)
    other = FULL.copy()
    other.head_seq += 1
    other.activity.enter(Status.RUNNING, 1)
    other.activity.active_micros += 1
    other.waiting.messages += 1
    assert dataclasses.asdict(FULL) == before
