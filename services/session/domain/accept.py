"""Taking events from clients: all of a request, or none (EVENTS §1)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason
from services.session.domain import admission, budget, inbox, lease, log, queue
from services.session.domain import event as events_of
from services.session.domain.news import News
from services.session.domain.ports import Call, CallState, InboxEntry, LogEntry
from services.session.domain.session import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chassis.ids import IdSource
    from drover.event.v1 import event_pb2
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionRef, SessionState

EVENT_PREFIX = "sevt"
_THREAD_IS_OURS = events_of.ANSWERS | {"user_tool_confirmation"}


@dataclass(frozen=True, slots=True)
class Accepted:
    """Events as they are stored, in the order sent, and what others must hear of."""

    events: list[event_pb2.Event]
    news: News


def no_model(_model_id: str) -> bool:
    """For callers that know of no model that takes system messages mid-conversation."""
    return False


def accept(
    tx: Transaction,
    ref: SessionRef,
    events: Sequence[event_pb2.Event],
    ids: IdSource,
    takes_system: Callable[[str], bool] = no_model,
) -> Accepted:
    """Stores what a client sent. The events are the caller's to give away: they are changed.

    `takes_system` says of a model's id whether that model takes system messages mid-conversation.

    Raises NOT_FOUND, ARCHIVED, INVALID_ARGUMENT as EVENTS §1 says, and CONFLICT for an id that
    belongs to another event.
    """
    state = tx.state(ref)
    if state is None:
        raise not_found(ref)
    admission.check_open(state)
    given = check_ids(events)
    known = tx.find(ref.session_id, given) if given else {}
    batch = _Batch(state, tx.now(), tx.calls(ref.session_id, _answered(events)), ids)
    stored: list[event_pb2.Event] = []
    for index, event in enumerate(events):
        path = f"events.{index}"
        if event.id in known:
            stored.append(repeated(known[event.id], event, path))
            continue
        before = events[index - 1] if index else None
        if event.HasField("system_message"):
            last = index == len(events) - 1
            admission.check_system_message(state, before, path, last=last)
            agent = tx.details(ref.session_id).agent
            admission.check_model(agent, path, takes_system=takes_system(agent.model.id))
        stored.append(batch.admit(event, path, tx, before))
    batch.store(tx)
    return Accepted(stored, batch.news())


def accept_initial(
    state: SessionState, events: Sequence[event_pb2.Event], ids: IdSource
) -> list[InboxEntry]:
    """The inbox that a session is born with: `user.message` only, all of them or none."""
    check_ids(events)
    batch = _Batch(state, state.created_at, {}, ids)
    for index, event in enumerate(events):
        path, name = f"initial_events.{index}", events_of.variant(event)
        if name not in {"user_message", "user_define_outcome"}:
            raise admission.refuse(f"{path}.type", "initial events are user.message events")
        admission.check_type(event, name, events_of.event_type(event), path)
        log.unstamp(event)
        batch.queue(event, name)
    return batch.queued


def not_found(ref: SessionRef) -> DroverError:
    """The refusal of a session that the workspace does not have."""
    return DroverError(Reason.NOT_FOUND, f"session {ref.session_id} not found")


def check_ids(events: Sequence[event_pb2.Event]) -> list[str]:
    """The ids that the sender chose. Raises INVALID_ARGUMENT when one is there twice."""
    given = [event.id for event in events if event.id]
    if len(set(given)) != len(given):
        raise admission.refuse("events", "two events have the same id")
    return given


def repeated(stored: event_pb2.Event, event: event_pb2.Event, path: str) -> event_pb2.Event:
    """The stored event that a repeated id stands for. Raises CONFLICT for a different one.

    The repetition is changed: it gets what the service itself puts into an event of its kind.
    """
    name = events_of.variant(event)
    if name == events_of.variant(stored):
        said, kept = getattr(event, name), getattr(stored, name)
        if name in _THREAD_IS_OURS:
            said.ClearField("session_thread_id")
        elif name == "session_usage":
            said.usage.active_seconds = kept.usage.active_seconds
        if said == kept:
            return stored
    raise DroverError(Reason.CONFLICT, f"{path}.id: the id belongs to another event")


def _answered(events: Sequence[event_pb2.Event]) -> set[str]:
    answered = set()
    for event in events:
        if event.HasField("user_tool_confirmation"):
            answered.add(event.user_tool_confirmation.tool_use_id)
        elif call_id := events_of.result_of(event, events_of.variant(event)):
            answered.add(call_id)
    return answered


@dataclass(slots=True)
class _Batch:
    """The events of one request, admitted one after the other against a changing state."""

    state: SessionState
    now: int
    calls: dict[str, Call]
    ids: IdSource
    queued: list[InboxEntry] = field(default_factory=list)
    logged: list[LogEntry] = field(default_factory=list)
    changed: dict[str, Call] = field(default_factory=dict)
    work: str = ""

    def admit(
        self,
        event: event_pb2.Event,
        path: str,
        tx: Transaction,
        before: event_pb2.Event | None,
    ) -> event_pb2.Event:
        name, event_type = events_of.variant(event), events_of.event_type(event)
        budget.check_taken(self.state, event_type, path)
        admission.check_type(event, name, event_type, path, self_hosted=self.state.self_hosted)
        log.unstamp(event)
        if name in events_of.ANSWERS:
            return self._admit_result(event, path, tx)
        if name == "system_message":
            return self._admit_system(event, before)
        if name == "user_message":
            admission.check_message(self.state, path)
        elif name == "user_interrupt":
            admission.check_interrupt(event, self.state, path)
            if budget.is_spent(self.state):
                # Nothing runs that it could stop, and what is paused goes on with more budget.
                return self._unstored(event)
        else:
            return self._admit_confirmation(event, path)
        return self.queue(event, name)

    def _admit_system(
        self, event: event_pb2.Event, before: event_pb2.Event | None
    ) -> event_pb2.Event:
        """Behind a message it waits along with it, else it enters the log at once.

        Behind a result that came too late to count it is as late as that.
        """
        if before is not None and before.HasField("user_message"):
            return self.queue(event, "system_message")
        if before is not None and not (self.logged and self.logged[-1].event is before):
            return self._unstored(event)
        event.id = event.id or self.ids(EVENT_PREFIX)
        self.logged.append(log.stamp(self.state, event, events_of.event_type(event), self.now))
        return event

    def queue(self, event: event_pb2.Event, name: str) -> event_pb2.Event:
        kind = events_of.INBOX[name]
        event.id = event.id or self.ids(EVENT_PREFIX)
        self.state.inbox_tail += 1
        self.state.waiting.add(kind)
        self.queued.append(
            InboxEntry(self.state.inbox_tail, kind, events_of.event_type(event), event)
        )
        return event

    def _unstored(self, event: event_pb2.Event) -> event_pb2.Event:
        """The answer to an event that is taken and has no effect."""
        event.id = event.id or self.ids(EVENT_PREFIX)
        event.processed_at.CopyFrom(log.timestamp(self.now))
        return event

    def _admit_confirmation(self, event: event_pb2.Event, path: str) -> event_pb2.Event:
        confirmation = event.user_tool_confirmation
        confirmation.ClearField("session_thread_id")
        call = self.calls.get(confirmation.tool_use_id)
        admission.check_confirmation(event, call, path)
        if call is None or call.state is not CallState.OPEN:
            # Late: the first answer counts (EVENTS §1).
            return self._unstored(event)
        self._change(call, call.confirmed(confirmation.result))
        return self.queue(event, events_of.variant(event))

    def _admit_result(self, event: event_pb2.Event, path: str, tx: Transaction) -> event_pb2.Event:
        name = events_of.variant(event)
        getattr(event, name).ClearField("session_thread_id")
        call = self.calls.get(events_of.result_of(event, name) or "")
        if name == "user_tool_result":
            admission.check_tool_result(call, path)
        else:
            admission.check_custom_result(call, path)
        event.id = event.id or self.ids(EVENT_PREFIX)
        if call is None or not call.awaited:
            return self._without_effect(event, call, tx)
        closed = dataclasses.replace(call, state=CallState.CLOSED, result_id=event.id)
        self._change(call, closed)
        self.logged.append(log.stamp(self.state, event, events_of.event_type(event), self.now))
        return event

    def _without_effect(
        self, event: event_pb2.Event, call: Call | None, tx: Transaction
    ) -> event_pb2.Event:
        """What answers a second result: the first one, where a client sent that."""
        result_id = call.result_id if call else ""
        for entry in self.logged:
            if entry.event.id == result_id:
                return entry.event
        first = tx.find(self.state.id, [result_id]).get(result_id)
        if first is not None and events_of.is_clients(events_of.variant(first)):
            return first
        event.processed_at.CopyFrom(log.timestamp(self.now))
        return event

    def _change(self, before: Call, after: Call) -> None:
        self.state.unanswered += after.awaited - before.awaited
        self.calls[after.id] = self.changed[after.id] = after

    def store(self, tx: Transaction) -> None:
        if not self.queued and not self.logged:
            return
        state = self.state
        running = state.activity.status is not Status.IDLE
        answered = bool(self.changed)
        if not running and (answered or inbox.needs_brain(state.stop, state.waiting)):
            if not state.needs_brain:
                state.updated_at = self.now  # its status is another one from now on
            state.needs_brain = True
        if self.queued:
            tx.enqueue(state.id, self.queued)
        if self.logged:
            tx.append(state.id, self.logged)
        if self.changed:
            tx.save_calls(state.id, list(self.changed.values()))
        tx.save(state)
        self.work = queue.see_to(tx, state, self.ids)

    def news(self) -> News:
        state = self.state
        return News(
            state.ref,
            stamped=[entry.event for entry in self.logged],
            echoes=[entry.event for entry in self.queued],
            inbox_tail=state.inbox_tail,
            input=inbox.summary(state.waiting, log_grown=bool(self.logged)),
            wake=state.needs_brain and not lease.is_live(state, self.now),
            generation=state.generation,
            released=state.lease_expires_at is None,
            work=self.work,
        )
