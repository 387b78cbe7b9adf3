"""Appending under a lease: take input, add events, give the lease back, in one step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from services.session.domain import admission, inbox, lease, log, queue, session
from services.session.domain import event as events_of
from services.session.domain.accept import EVENT_PREFIX, check_ids, not_found, repeated
from services.session.domain.event import FOR_WORKER, WAIT_FOR_CLIENT, CallKind
from services.session.domain.news import News
from services.session.domain.ports import Call, CallState, LogEntry, LogQuery
from services.session.domain.session import Status, Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.ids import IdSource
    from drover.event.v1 import event_pb2
    from services.session.domain.ports import InboxEntry, Transaction
    from services.session.domain.session import SessionRef, SessionState

# What came in by another way travels in one acknowledgement; past this the brain reads slices.
_OTHERS_BYTES = 16 * 1024 * 1024
_OTHERS_LIMIT = 10_000
_RUNNING = frozenset({Status.RUNNING, Status.RESCHEDULING})
# What a brain may settle as a worker would.
_SETTLED = {"user_tool_result": FOR_WORKER, "user_custom_tool_result": {CallKind.CUSTOM}}
_UNANSWERED = frozenset({CallState.OPEN, CallState.ALLOWED})


@dataclass(frozen=True, slots=True)
class Holder:
    """Who appends. `sent_seq` is how much of the log its brain was sent; `None` is not told."""

    ref: SessionRef
    generation: int
    sent_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Appends:
    """What became of a run of requests: acknowledgements, up to a refusal if there was one.

    `sent_seq` is how much of the log the brain has once it got them; `expires_at` the lease's end.
    """

    acknowledged: list[lease_pb2.Appended]
    refusal: DroverError | None
    news: News
    sent_seq: int
    expires_at: int


def append(
    tx: Transaction, holder: Holder, requests: Sequence[lease_pb2.AppendEvents], ids: IdSource
) -> Appends:
    """Appends for the lease's holder, one request after the other, up to the first refusal.

    Each request is kept whole or not at all, and its events are changed. Without requests the
    lease is renewed and nothing else. Raises NOT_FOUND, and LEASE_LOST for anyone but the holder.
    """
    state, now = tx.state(holder.ref), tx.now()
    if state is None:
        raise not_found(holder.ref)
    lease.check(state, holder.generation)
    lease.renew(state, now)
    sent_seq = state.head_seq if holder.sent_seq is None else holder.sent_seq
    return append_to(tx, state, sent_seq, requests, ids)


def append_to(
    tx: Transaction,
    state: SessionState,
    sent_seq: int,
    requests: Sequence[lease_pb2.AppendEvents],
    ids: IdSource,
) -> Appends:
    """As `append`, for the holder of a lease that was just taken or renewed, and saves `state`."""
    now = tx.now()
    acknowledged: list[lease_pb2.Appended] = []
    stamped: list[event_pb2.Event] = []
    refusal, work = None, ""
    for request in requests:
        step = _Step(state.copy(), now, ids)
        try:
            others = _others(tx, state, sent_seq)
            step.plan(tx, request)
        except DroverError as error:
            refusal = error
            break
        if not step.pending:
            step.store(tx)
            state, work = step.state, work or step.work
            stamped += [entry.event for entry in step.entries]
        sent_seq = state.head_seq
        acknowledged.append(step.acknowledge(request, others, state))
        if step.released:
            break
    tx.save(state)
    news = News(
        state.ref,
        stamped=stamped,
        generation=state.generation,
        ends=bool(stamped) and state.activity.status is Status.TERMINATED,
        released=state.lease_expires_at is None,
        work=work,
    )
    return Appends(acknowledged, refusal, news, sent_seq, now + lease.LEASE_MICROS)


def emit(
    tx: Transaction, holder: Holder, events: Sequence[event_pb2.Event], ids: IdSource
) -> tuple[list[event_pb2.Event], News]:
    """Appends for the lease's holder outside its stream, and answers the events as stored.

    A second result of a call is stored nowhere and so is not among them.
    """
    result = append(tx, holder, [lease_pb2.AppendEvents(events=events)], ids)
    if result.refusal is not None:
        raise result.refusal
    stored = {event.id: event for event in result.news.stamped}
    repeated = [event.id for event in events if event.id and event.id not in stored]
    if repeated:
        stored |= tx.find(holder.ref.session_id, repeated)
        order = [event.id for event in events if event.id in stored]
        return [stored[event_id] for event_id in order], result.news
    return list(stored.values()), result.news


def _others(tx: Transaction, state: SessionState, sent_seq: int) -> list[event_pb2.Event]:
    if state.head_seq <= sent_seq:
        return []
    query = LogQuery(sent_seq, state.head_seq, _OTHERS_LIMIT, _OTHERS_BYTES)
    others, more = tx.log(state.id, query)
    if more:
        raise DroverError(
            Reason.UNAVAILABLE, "too much has entered the log: open the lease's stream again"
        )
    return others


@dataclass(slots=True)
class _Step:
    """One request, planned against a copy of the state and stored once nothing is against it."""

    state: SessionState
    now: int
    ids: IdSource
    entries: list[LogEntry] = field(default_factory=list)
    taken: list[tuple[InboxEntry, int]] = field(default_factory=list)
    opened: dict[str, Call] = field(default_factory=dict)
    changed: dict[str, Call] = field(default_factory=dict)
    threads: dict[str, Status] = field(default_factory=dict)
    waits_for: list[str] = field(default_factory=list)
    # The cap in cents that the brain gave with the usage, 0 for none.
    told: int | None = None
    released: bool = False
    pending: bool = False
    rebudgeted: bool = False
    work: str = ""

    def plan(self, tx: Transaction, request: lease_pb2.AppendEvents) -> None:
        fresh = self._fresh(tx, request.events)
        # A request whose events are all there was kept before: it has had its input too.
        if fresh or not request.events:
            for entry in inbox.choose(tx, self.state.id, self.state.waiting, request.take):
                self._take(entry)
        results = [events_of.result_of(event, events_of.variant(event)) for event in fresh]
        answered = [call_id for call_id in results if call_id is not None]
        known = tx.calls(self.state.id, answered) if answered else {}
        for event in fresh:
            self._add(event, known)
        if request.HasField("usage"):
            self.state.usage = request.usage.SerializeToString()
        if request.release:
            self._release(tx)

    def _fresh(
        self, tx: Transaction, events: Sequence[event_pb2.Event]
    ) -> Sequence[event_pb2.Event]:
        """The events that the log does not have yet. Raises CONFLICT for the id of another one."""
        given = check_ids(events)
        if not given:
            return events
        # The same result again need not be appended, as it is not the call's first.
        surely = any(events_of.result_of(one, events_of.variant(one)) for one in events)
        logged = tx.logged(self.state.id, given, surely=surely)
        # What waits is no brain's, and its id is taken: it will be in the log.
        known = tx.find(self.state.id, given) if logged or self.state.waiting.total else {}
        if not known:
            return events
        for index, event in enumerate(events):
            if event.id in known:
                repeated(known[event.id], event, f"events.{index}")
        return [event for event in events if event.id not in known]

    def _take(self, entry: InboxEntry) -> None:
        self.state.waiting.add(entry.kind, -1)
        self.entries.append(log.stamp(self.state, entry.event, entry.type, self.now))
        self.taken.append((entry, self.state.head_seq))

    def _add(self, event: event_pb2.Event, known: dict[str, Call]) -> None:
        name = events_of.variant(event)
        if not events_of.is_brains(name):
            kind = events_of.event_type(event) or "an event of an unknown type"
            raise admission.refuse("events", f"{kind} is not a brain's to append")
        event.id = event.id or self.ids(EVENT_PREFIX)
        self_hosted = self.state.self_hosted
        opened = events_of.opened_call(event, name, self_hosted=self_hosted)
        if opened is not None:
            self.opened[event.id] = Call(event.id, opened)
            self.state.unanswered += opened in WAIT_FOR_CLIENT
        elif (call_id := events_of.result_of(event, name)) is not None:
            if not self._close(call_id, event, known):
                return
        elif (status := session.status_of(name)) is not None:
            self._enter(status, event)
        elif (of_thread := session.thread_status_of(event, name)) is not None:
            self.threads[of_thread[0]] = of_thread[1]
        elif name == "session_usage":
            # The session keeps this time, by the database's clock: its event and its object agree.
            active = self.state.activity.active_seconds(self.now)
            event.session_usage.usage.active_seconds = active
            self.told = int(event.session_usage.budget.max_list_cost.amount or 0)
        self.entries.append(log.stamp(self.state, event, events_of.event_type(event), self.now))

    def _close(self, call_id: str, event: event_pb2.Event, known: dict[str, Call]) -> bool:
        """Whether the result is the call's first, and so the one that is kept (P3)."""
        call = self.opened.get(call_id) or self.changed.get(call_id) or known.get(call_id)
        if call is None:
            raise admission.refuse("events", f"a result names the unknown call {call_id}")
        kinds = _SETTLED.get(events_of.variant(event))
        if kinds and not (self.state.self_hosted and call.kind in kinds):
            raise admission.refuse("events", f"no worker answers the call {call_id} so")
        if call.state is CallState.CLOSED:
            return False
        self.state.unanswered -= call.awaited
        closed = dataclasses.replace(call, state=CallState.CLOSED, result_id=event.id)
        (self.opened if call_id in self.opened else self.changed)[call_id] = closed
        return True

    def _enter(self, status: Status, event: event_pb2.Event) -> None:
        state = self.state
        state.activity.enter(status, self.now)
        state.updated_at = self.now
        if status in _RUNNING:
            state.needs_brain = True  # whatever becomes of this one
        elif status is Status.TERMINATED:
            state.needs_brain = False
        else:
            reason = event.session_status_idle.stop_reason
            state.stop = session.stop_of(reason)
            self.waits_for = list(reason.requires_action.event_ids)

    def _release(self, tx: Transaction) -> None:
        state = self.state
        if state.activity.status in _RUNNING:
            raise admission.refuse("release", "the session still runs: it must go idle first")
        if not state.ended:
            self.rebudgeted = self._rebudgeted(tx)
            self.pending = (
                self.rebudgeted
                or inbox.needs_brain(state.stop, state.waiting)
                or self._answered(tx)
            )
        if not self.pending:
            lease.release(state)
            self.released = True

    def _answered(self, tx: Transaction) -> bool:
        """Whether a call that the session would wait for has its answer by now."""
        if self.state.stop is not Stop.REQUIRES_ACTION or not self.waits_for:
            return False
        calls = tx.calls(self.state.id, self.waits_for) | self.opened | self.changed
        for call_id in self.waits_for:
            if call_id not in calls:
                raise admission.refuse("events", f"the session cannot wait for {call_id}")
        return any(calls[call_id].state not in _UNANSWERED for call_id in self.waits_for)

    def _rebudgeted(self, tx: Transaction) -> bool:
        """Whether the session stops at a budget that it does not have any more."""
        if self.state.stop is not Stop.BUDGET_REACHED or self.told is None:
            return False
        return self.told != (tx.details(self.state.id).budget or 0)

    def store(self, tx: Transaction) -> None:
        session_id = self.state.id
        if self.entries:
            tx.append(session_id, self.entries)
        if self.taken:
            tx.take(session_id, [(entry.position, seq) for entry, seq in self.taken])
        if self.opened:
            tx.open_calls(session_id, list(self.opened.values()))
        if self.changed:
            tx.save_calls(session_id, list(self.changed.values()))
        if self.threads:
            for thread in tx.threads(session_id):
                if (status := self.threads.get(thread.id)) is not None:
                    thread.activity.enter(status, self.now)
                    thread.updated_at = self.now
                    tx.save_thread(thread)
        if self.state.self_hosted:
            self._see_to_work(tx)

    def _see_to_work(self, tx: Transaction) -> None:
        if self.state.ended:
            queue.end(tx, self.state)
        elif opened := sum(call.awaited for call in self.opened.values()):
            self.work = queue.see_to(tx, self.state, self.ids, opened=opened)

    def acknowledge(
        self,
        request: lease_pb2.AppendEvents,
        others: list[event_pb2.Event],
        state: SessionState,
    ) -> lease_pb2.Appended:
        return lease_pb2.Appended(
            request_id=request.request_id,
            taken=[] if self.pending else [entry.event for entry, _ in self.taken],
            others=others,
            head_seq=state.head_seq,
            # A change of the budget may have been sent while this was on its way.
            input=inbox.summary(state.waiting, log_grown=self.rebudgeted),
            released=self.released,
            input_pending=self.pending,
        )
