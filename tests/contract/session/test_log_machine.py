"""Clients, brains and crashes at random against one session: what must hold, holds everywhere."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import closing

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from services.session.domain import inbox, lease
from services.session.domain.accept import accept
from services.session.domain.append import Holder, append
from services.session.domain.listing import EventsQuery, list_events
from services.session.domain.ports import About
from services.session.domain.session import Status, Stop
from services.session.store.schema import SCHEMA
from tests.doubles.databases import made
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
    system_message,
    tool_result,
    tool_use,
    worker_result,
)
from tests.doubles.session_playground import UNKNOWN_OUTCOME, InMemory, Stored
from tests.doubles.session_world import World, counting_ids

TAKES = st.sampled_from(
    [
        lease_pb2.TAKE_INPUT_CONTROL,
        lease_pb2.TAKE_INPUT_CONFIRMATIONS,
        lease_pb2.TAKE_INPUT_NEXT,
        lease_pb2.TAKE_INPUT_ALL,
    ]
)

HISTORY = "session_history"
"""A tool that stays with the brain; those of the sandbox are workers' here."""

CALLS = {
    "history": lambda call_id: tool_use(call_id, ALLOW, HISTORY),
    "asked history": lambda call_id: tool_use(call_id, ASK, HISTORY),
    "worker's": lambda call_id: tool_use(call_id, ALLOW),
    "asked worker's": lambda call_id: tool_use(call_id, ASK),
    "custom": custom_use,
}
ANSWERS = {"confirmation": confirmation, "result": worker_result, "custom result": custom_result}


def outcome(call):
    """What a call answers, or the reason why it was refused."""
    try:
        return call(), None
    except DroverError as error:
        return None, error.reason


class SessionMachine(RuleBasedStateMachine):
    """Two brains, of which one may be stale, and clients that send what they like."""

    def __init__(self, store, ids):
        super().__init__()
        self.store = store
        self.world = World(store=store, ids=ids, self_hosted=True)
        self.numbers = itertools.count(1)
        self.generations = []
        self.calls = {}
        self.accepted = []
        self.log = []

    # what clients do

    @rule(count=st.integers(1, 3), accompanied=st.booleans())
    def send_messages(self, count, accompanied):
        messages = [message(str(n)) for n in range(count)]
        if accompanied:
            messages.append(system_message())
        stored, reason = outcome(lambda: self.world.accept(*messages))
        if stored is not None:
            self.accepted += [event.id for event in stored]
        else:
            state = self.world.state
            assert reason is Reason.INVALID_ARGUMENT
            assert state.stop is Stop.REQUIRES_ACTION
            assert state.unanswered

    @rule()
    def send_interrupt(self):
        self.accepted += [event.id for event in self.world.accept(interrupt())]

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def answer(self, data):
        call_id = data.draw(st.sampled_from(sorted(self.calls)))
        answer = data.draw(st.sampled_from(sorted(ANSWERS)))
        _, reason = outcome(lambda: self.world.accept(ANSWERS[answer](call_id)))
        assert reason in {None, Reason.INVALID_ARGUMENT}

    # what brains do

    @rule()
    def open_lease(self):
        held = lease.is_live(self.world.state, self.now())
        generation, reason = outcome(self.world.open)
        assert reason is (Reason.LEASE_HELD if held else None)
        if generation is not None:
            self.generations.append(generation)

    @precondition(lambda self: self.generations)
    @rule(take=TAKES, old=st.booleans(), extra=st.integers(0, 2))
    def work(self, take, old, extra):
        events = [running(), *(said("…", f"a{next(self.numbers)}") for _ in range(extra))]
        self.append(old, *events, take=take)

    @precondition(lambda self: self.generations)
    @rule(kind=st.sampled_from(sorted(CALLS)))
    def call(self, kind):
        call_id = f"c{next(self.numbers)}"
        if self.append(False, running(), CALLS[kind](call_id)):
            self.calls[call_id] = kind

    @precondition(lambda self: self.generations and self.calls)
    @rule(data=st.data(), old=st.booleans())
    def give_result(self, data, old):
        call_id = data.draw(st.sampled_from(sorted(self.calls)))
        self.append(old, tool_result(call_id, event_id=f"r{next(self.numbers)}"))

    @precondition(lambda self: self.generations)
    @rule(take=TAKES, old=st.booleans(), wait=st.booleans())
    def release(self, take, old, wait):
        waits_for = [call_id for call_id in self.calls if self.calls[call_id] != "history"]
        waits_for = [call_id for call_id in waits_for if call_id not in self.results()]
        acknowledged = self.append(old, idle(*(waits_for if wait else [])), take=take, release=True)
        if acknowledged and acknowledged.released:
            state = self.world.state
            assert state.lease_expires_at is None
            assert not state.needs_brain
            assert not inbox.needs_brain(state.stop, state.waiting)

    @precondition(lambda self: self.generations)
    @rule()
    def lose_brain(self):
        self.world.abandon(self.generations[-1])

    @rule(seconds=st.sampled_from([-5, 1, 4, 11]))
    def let_time_pass(self, seconds):
        self.store.pass_time(seconds)

    # what happens at the same time, and whatever a crash leaves of it

    @rule(
        kinds=st.lists(st.sampled_from(["client", "brain", "stale brain"]), min_size=2, max_size=5)
    )
    def do_at_once(self, kinds):
        self.at_once(kinds, crash=False)

    @rule(kinds=st.lists(st.sampled_from(["client", "brain"]), min_size=2, max_size=5))
    def crash(self, kinds):
        self.at_once(kinds, crash=True)

    def at_once(self, kinds, *, crash):
        """Each writes two events: both are there or none, and those of an acknowledged one are."""
        before = {event.id for event in self.world.events()}
        writes, ids = [], []
        for kind in kinds:
            named = [f"x{next(self.numbers)}" for _ in range(2)]
            fn = self.client(named) if kind == "client" else self.brain(named, kind)
            writes.append(fn)
            ids.append(named)
        every = [event_id for named in ids for event_id in named]
        about = About(self.world.ref, logged=every, found=every)
        outcomes = self.store.at_once(writes, about, crash=crash)
        events = self.world.events()
        there = {event.id for event in events}
        for kind, named, result in zip(kinds, ids, outcomes, strict=True):
            kept = there.issuperset(named)
            assert kept or there.isdisjoint(named)
            if result is UNKNOWN_OUTCOME or (crash and reason_of(result) is Reason.UNAVAILABLE):
                continue
            refused = reason_of(result)
            assert kept is (refused is None)
            if kind == "client":
                assert refused in {None, Reason.INVALID_ARGUMENT}  # it waits for answers
            else:
                holds = kind == "brain" and self.holds()
                assert refused is (None if holds else Reason.LEASE_LOST)
        # Clients' events are in the order in which they were accepted, whoever was first.
        self.accepted += [
            event.id
            for event in events
            if event.id not in before and event.HasField("user_message")
        ]

    def client(self, ids):
        messages = [message("at once", event_id) for event_id in ids]
        return lambda tx: accept(tx, self.world.ref, messages, self.world.ids)

    def brain(self, ids, kind):
        generation = self.generations[0 if kind == "stale brain" else -1] if self.generations else 1
        if kind == "stale brain":
            generation -= 1
        request = lease_pb2.AppendEvents(events=[said("at once", event_id) for event_id in ids])

        def fn(tx):
            result = append(tx, Holder(self.world.ref, generation), [request], self.world.ids)
            if result.refusal is not None:
                raise result.refusal
            return result

        return fn

    def holds(self):
        """Whether the newest brain has the lease."""
        state = self.world.state
        return bool(self.generations) and (
            state.lease_expires_at is not None and state.generation == self.generations[-1]
        )

    def append(self, old, *events, **more):
        generation = self.generations[0] if old else self.generations[-1]
        state = self.world.state
        holds = state.lease_expires_at is not None and state.generation == generation
        acknowledged, reason = outcome(lambda: self.world.append(generation, *events, **more))
        assert reason is (None if holds else Reason.LEASE_LOST)
        return acknowledged

    def now(self):
        return self.world.store.run(lambda tx: tx.now(), keep=False)

    def results(self):
        results = [event.agent_tool_result.tool_use_id for event in self.log]
        results += [event.user_custom_tool_result.custom_tool_use_id for event in self.log]
        results += [event.user_tool_result.tool_use_id for event in self.log]
        return [call_id for call_id in results if call_id]

    # what must hold

    @invariant()
    def what_must_hold_holds(self):
        """Looked at in one transaction: each is two ways over the network."""
        events, state, calls = self.world.store.run(self.look, keep=False)
        self.the_log_only_grows_and_nothing_in_it_is_lost_doubled_or_out_of_order(events)
        self.a_system_message_is_behind_the_message_that_it_came_with()
        self.a_call_has_at_most_one_result()
        assert state.unanswered == sum(call.awaited for call in calls.values())
        self.who_can_go_on_has_a_brain_or_needs_one(state)
        assert self.generations == sorted(set(self.generations))

    def look(self, tx):
        ref = self.world.ref
        page = list_events(tx, ref, EventsQuery(limit=1000), None)
        return page.events, tx.state(ref), tx.calls(ref.session_id, list(self.calls))

    def the_log_only_grows_and_nothing_in_it_is_lost_doubled_or_out_of_order(self, events):
        log = [event for event in events if event.seq]
        assert log[: len(self.log)] == self.log
        self.log = log
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        stamps = [event.processed_at.ToMicroseconds() for event in log]
        assert stamps == sorted(stamps)
        ids = [event.id for event in events]
        assert len(ids) == len(set(ids))
        assert set(self.accepted) <= set(ids)
        order = {event_id: n for n, event_id in enumerate(self.accepted)}
        for kind in ("user_message", "user_interrupt"):
            taken = [order[event.id] for event in log if event.HasField(kind)]
            assert taken == sorted(taken)

    def a_system_message_is_behind_the_message_that_it_came_with(self):
        order = {event_id: n for n, event_id in enumerate(self.accepted)}
        pairs = [
            (first, second)
            for first, second in itertools.pairwise(self.log)
            if second.HasField("system_message")
        ]
        for first, second in pairs:
            assert order[first.id] == order[second.id] - 1

    def a_call_has_at_most_one_result(self):
        results = self.results()
        assert len(results) == len(set(results))

    def who_can_go_on_has_a_brain_or_needs_one(self, state):
        if state.activity.status is Status.RUNNING:
            assert state.needs_brain
        if inbox.needs_brain(state.stop, state.waiting):
            assert state.needs_brain


def reason_of(result):
    return result.reason if isinstance(result, DroverError) else None


def play(store, **budget):
    """Plays games against one store, each with a session of its own."""
    ids = counting_ids()
    run_state_machine_as_test(
        lambda: SessionMachine(store, ids), settings=settings(deadline=None, **budget)
    )


def test_what_must_hold_holds_in_memory():
    ids = counting_ids()
    run_state_machine_as_test(
        lambda: SessionMachine(InMemory(), ids),
        settings=settings(deadline=None, max_examples=150, stateful_step_count=40),
    )


@pytest.fixture
def runner():
    with asyncio.Runner() as runner:
        yield runner


def test_what_must_hold_holds_on_sqlite(runner, tmp_path):
    url = f"sqlite:///{tmp_path / 'session.db'}"
    with closing(Stored(runner, url, replicas=1)) as store:
        play(store, max_examples=40, stateful_step_count=30)


def test_what_must_hold_holds_between_replicas_on_postgres(runner, postgres):
    with closing(Stored(runner, runner.run(made(postgres, SCHEMA)), replicas=2)) as store:
        play(store, max_examples=20, stateful_step_count=30)
