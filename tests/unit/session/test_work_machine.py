"""Clients, brains and workers at random against one self-hosted session: it is never left alone."""

from __future__ import annotations

import itertools

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
from services.session.domain import queue
from services.session.domain.work import NO_HEARTBEAT, WorkState
from services.session.domain.work_ports import Queue
from tests.doubles.session_events import (
    custom_result,
    custom_use,
    idle,
    interrupt,
    message,
    running,
    said,
    tool_use,
    worker_result,
)
from tests.doubles.session_world import WORKSPACE, World

ENV = Queue(WORKSPACE, "env_1")
ANSWERS = {"bash": (tool_use, worker_result), "custom": (custom_use, custom_result)}


def refusal(fn, *given):
    """What something is refused with; `None` where it is done."""
    try:
        fn(*given)
    except DroverError as refused:
        return refused
    return None


class Work(RuleBasedStateMachine):
    """What must hold is said by the invariants; `good` is the token that opens the session."""

    def __init__(self):
        super().__init__()
        self.world = World(self_hosted=True)
        self.calls = {}
        self.numbers = itertools.count()
        self.tokens = []
        self.good = None

    def live(self):
        return self.world.store.run(lambda tx: tx.live_work(self.world.ref.session_id), keep=False)

    def change(self, fn):
        item = self.live()
        return self.world.do(lambda tx: queue.change(tx, item, fn))

    @invariant()
    def note_what_was_queued_again(self):
        item = self.live()
        if item is None or (item.state is WorkState.QUEUED and not item.handed_out):
            self.good = None

    def lives(self):
        return self.live() is not None

    # the client's side

    @rule()
    def send_a_message(self):
        waits = refusal(self.world.accept, message())  # for answers
        assert self.lives() or waits.reason is Reason.INVALID_ARGUMENT

    @rule()
    def interrupt(self):
        self.world.accept(interrupt())
        assert self.lives() or not self.world.state.busy

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def answer_a_call(self, data):
        call_id = data.draw(st.sampled_from(sorted(self.calls)))
        _, answer = ANSWERS[self.calls.pop(call_id)]
        self.world.accept(answer(call_id))
        assert self.lives()  # for the session goes on

    # a brain's side

    @precondition(lambda self: self.world.state.needs_brain)
    @rule(kinds=st.lists(st.sampled_from(sorted(ANSWERS)), max_size=2))
    def take_a_turn(self, kinds):
        generation = self.world.open(after_seq=0)
        taken = lease_pb2.TAKE_INPUT_ALL
        self.world.append(generation, running(), take=taken)
        for call_id, kind in self.calls.items():  # an interrupt, or all at once: none stays open
            self.world.append(generation, ANSWERS[kind][1](call_id))
        self.calls = {f"sevt_{next(self.numbers)}": kind for kind in kinds}
        opened = [ANSWERS[kind][0](call_id) for call_id, kind in self.calls.items()]
        self.world.append(
            generation,
            said("well", f"said_{next(self.numbers)}"),
            *opened,
            idle(*self.calls),
            release=True,
        )

    # workers' side

    @precondition(lives)
    @rule(reclaim=st.sampled_from([0, 5_000_000]))
    def poll(self, reclaim):
        first, token = self.live(), f"token {len(self.tokens)}"
        item = self.world.store.run(
            lambda tx: queue.poll(tx, ENV, first, token, reclaim_micros=reclaim)
        )
        if item is not None:
            self.tokens.append(token)
            self.good = token

    @precondition(lives)
    @rule()
    def acknowledge(self):
        refused = refusal(self.change, lambda item, _state, now: item.acknowledge(now, 300))
        assert refused is None or refused.reason is Reason.CONFLICT

    @precondition(lives)
    @rule(right=st.booleans())
    def beat(self, right):
        before = self.live()
        expected = (before.last_heartbeat or NO_HEARTBEAT) if right else "another"
        has_worker = before.state in {WorkState.STARTING, WorkState.ACTIVE}
        refused = refusal(self.change, lambda item, _state, now: item.beat(expected, now, 300))
        if before.state is WorkState.QUEUED or (has_worker and not right):
            assert refused.error_code == "heartbeat_precondition_failed"
            assert self.live() == before
        else:
            assert refused is None
            assert (self.live().state is WorkState.ACTIVE) is has_worker

    @precondition(lives)
    @rule(force=st.booleans())
    def stop(self, force):
        self.change(lambda item, state, now: queue.stop(item, state, now, force=force))

    @rule(seconds=st.sampled_from([1, 61, 301]))
    def time_passes(self, seconds):
        self.world.clock.move(seconds)
        for item in self.world.store.run(lambda tx: tx.lapsed_work(9), keep=False):
            assert self.world.do(lambda tx, item=item: queue.lapse(tx, item))

    # what holds

    @invariant()
    def open_calls_have_a_live_item(self):
        state = self.world.state
        assert state.unanswered == len(self.calls)
        assert self.lives() or not state.unanswered

    @invariant()
    def what_a_worker_has_runs_out(self):
        item = self.live()
        if item is not None:
            assert (item.lease_expires_at is None) is (item.state is WorkState.QUEUED)

    @invariant()
    def the_last_token_alone_is_good(self):
        for token in self.tokens:
            found = self.world.store.run(
                lambda tx, token=token: tx.work_of_token(queue.digest_of(token)), keep=False
            )
            lives = found is not None and found.state is not WorkState.STOPPED
            assert not lives or token == self.good


def test_a_session_with_an_open_call_has_work_that_one_worker_has_or_will_get():
    run_state_machine_as_test(
        Work, settings=settings(max_examples=30, stateful_step_count=30, deadline=None)
    )
