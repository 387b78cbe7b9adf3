"""Wherever a log is forked, the fork is at rest, and a model takes its conversation.

The logs are those that brains make: random ones, and the golden ones of every release.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.event.v1 import event_pb2
from drover.session.v1.lease_pb2 import InputWaiting
from services.brain.domain.decision import Mine, Release
from services.brain.domain.usage import UsageTotals
from services.session.domain import importing, listing, view
from services.session.domain.listing import EventsQuery
from services.session.domain.ports import CallState
from services.session.domain.session import SessionDetails, SessionState, Status, ThreadState
from tests.doubles.api_history import check_history
from tests.doubles.session_copies import MemoryCopyStore
from tests.doubles.session_registry import FakeEnvironments
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_transfer import forked
from tests.doubles.session_world import WORKSPACE, ManualClock, counting_ids
from tests.replay import golden
from tests.replay.golden import GoldenLog
from tests.unit.brain.logs import HARNESS, World

GOLDEN = golden.recorded()


class Source:
    """A session in memory with a log that was made elsewhere."""

    def __init__(self, session, log):
        self.store, self.ids = MemoryStore(ManualClock()), counting_ids()
        state = SessionState(
            id="sesn_source",
            workspace_id=WORKSPACE,
            agent_id=session.agent.id,
            agent_version=session.agent.version,
            primary_thread_id=session.primary_thread_id,
            created_at=1,
            updated_at=1,
        )
        self.ref = state.ref
        environment = FakeEnvironments().environment
        details = SessionDetails(environment.id, session.agent, environment.config)
        thread = ThreadState(session.primary_thread_id, state.id, created_at=1, updated_at=1)
        asyncio.run(
            MemoryCopyStore(self.store).step(lambda tx: fill(tx, state, details, thread, log))
        )


def fill(tx, state, details, thread, log):
    tx.begin(state, details, [thread])
    begun = importing.Import(state, details, [thread], None, tx.now() * 2, {})
    done = importing.add(tx, begun, [event_pb2.Event.FromString(raw) for raw in log])
    if done.status is Status.TERMINATED:
        done.state.activity.enter(Status.TERMINATED, tx.now())
    tx.publish(done.state)


def check_fork(source, event):
    """Forks the source at an event and holds the fork to what a session at rest is."""
    snapshot = asyncio.run(forked(source, event.id))
    log = source.store.run(
        lambda tx: listing.list_events(tx, snapshot.state.ref, EventsQuery(limit=10_000), None)
    ).events
    calls = source.store.run(lambda tx: tx.calls(snapshot.state.id, [one.id for one in log]))
    assert all(call.state is CallState.CLOSED for call in calls.values())
    session = view.session(snapshot)
    brain = HARNESS.begin(session)
    for one in log:
        HARNESS.project(brain, one, 0.0)
    assert HARNESS.decide(brain, InputWaiting(), Mine()) == Release()
    assert not brain.needs_model
    told = event_pb2.Event(seq=len(log) + 1)
    told.user_message.content.add().text.text = "go on"
    HARNESS.project(brain, told, 0.0)
    assert brain.usage.snapshot(0.0) == UsageTotals().snapshot(0.0)
    check_history(json.loads(HARNESS.request(brain).body))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32), data=st.data())
def test_a_random_log_can_be_forked_at_any_event(seed, data):
    world = World(seed)
    for _ in range(data.draw(st.integers(20, 120))):
        world.step()
    if not world.log:
        return
    for event in world.log:
        event.id = event.id or f"unnamed_{event.seq}"
    source = Source(world.session, [event.SerializeToString() for event in world.log])
    for place in data.draw(st.sets(st.integers(0, len(world.log) - 1), max_size=8)):
        check_fork(source, world.log[place])


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_log_can_be_forked_at_every_event(name):
    log = GoldenLog.read(GOLDEN[name])
    source = Source(log.session, [event.SerializeToString() for event in log.events])
    for event in log.events:
        check_fork(source, event)
