"""Checking what an import brings, record by record: nothing of it is believed.

A log is an input like any other. Whatever the service relies on is found in it again, or the import
is refused: dense positions, stamps in order, one id an event, one result a call, and a status that
says that nobody is at work.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from services.session.domain import event as events_of
from services.session.domain import inbox, session
from services.session.domain.admission import refuse
from services.session.domain.event import ASKED, WAIT_FOR_CLIENT
from services.session.domain.ports import Call, CallState, InboxEntry, LogEntry
from services.session.domain.session import Status, Stop
from services.session.domain.snapshot import micros, restore
from services.session.domain.support import check_recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.event.v1 import event_pb2
    from drover.session.v1 import transfer_pb2
    from services.session.domain.copies import CopyTransaction
    from services.session.domain.session import SessionDetails, SessionState, ThreadState

MAX_EVENT_BYTES: Final = 48 * 1024 * 1024
"""No event is larger: a request has 32 MB, and what it is answered in must fit a message."""

_MAX_ID: Final = 128
_CLOCKS_APART: Final = 86_400 * 1_000_000
"""How far ahead, in microseconds, the clock of another installation may be."""


@dataclass(slots=True)
class Import:
    """A session on its way in, as far as it has come.

    `state` is as its log so far makes it, and `wanted` as it was exported; `status` and
    `of_threads` are what the log says of the session and its threads. `now` is when it began.
    """

    state: SessionState
    details: SessionDetails
    threads: list[ThreadState]
    wanted: transfer_pb2.SessionSnapshot
    now: int
    of_threads: dict[str, Status]
    status: Status = Status.IDLE

    def copy(self) -> Import:
        """A copy to go on with, so that a step that is run again begins where it began."""
        other = copy.copy(self)
        other.state = self.state.copy()
        other.of_threads = dict(self.of_threads)
        return other


def begin(snapshot: transfer_pb2.SessionSnapshot, workspace_id: str, now: int) -> Import:
    """The first record: the session without its events.

    Raises INVALID_ARGUMENT, and SESSION_RUNNING for one that was exported while it ran.
    """
    if snapshot.status not in {int(Status.IDLE), int(Status.TERMINATED)}:
        raise exported_while_running()
    state, details, threads = restore(snapshot, workspace_id)
    if int(state.activity.status) != snapshot.status:
        raise refuse("session.activity.status", "is not the session's status")
    if state.activity.status is not Status.TERMINATED:
        check_recipe(details.environment, "session.environment")
    idle = dict.fromkeys((thread.id for thread in threads), Status.IDLE)
    return Import(state, details, threads, snapshot, now, idle)


def exported_while_running() -> DroverError:
    """The refusal of a session whose turn cannot go on elsewhere."""
    return DroverError(
        Reason.SESSION_RUNNING,
        "the session ran when it was exported, and its turn cannot go on elsewhere: send it "
        "user.interrupt, wait until it is idle and export it again, or export a fork of it",
    )


def add(tx: CopyTransaction, before: Import, events: Sequence[event_pb2.Event]) -> Import:
    """The next events of the log. Raises INVALID_ARGUMENT for what no log could hold."""
    after = before.copy()
    state = after.state
    _check_ids(tx, state.id, events, "event")
    entries = [_entry(after, event) for event in events]
    calls = _Calls(tx, state, events)
    for entry in entries:
        calls.fold(entry.event)
        _fold_status(after, entry.event)
    tx.append(state.id, entries)
    calls.store(tx)
    return after


def wait(tx: CopyTransaction, before: Import, events: Sequence[event_pb2.Event]) -> Import:
    """The next events of the inbox. Raises INVALID_ARGUMENT for what could not wait there."""
    after = before.copy()
    state = after.state
    _check_ids(tx, state.id, events, "waiting event")
    entries = []
    for event in events:
        state.inbox_tail += 1
        path, name = f"waiting event {state.inbox_tail}", events_of.variant(event)
        kind = events_of.INBOX.get(name)
        if kind is None:
            raise refuse(path, f"{_type(event)} never waits in an inbox")
        if event.seq or event.HasField("processed_at") or event.thread_id:
            raise refuse(path, "what waits has neither position nor time")
        state.waiting.add(kind)
        entries.append(InboxEntry(state.inbox_tail, kind, events_of.event_type(event), event))
    tx.enqueue(state.id, entries)
    return after


def finish(done: Import, end: transfer_pb2.SessionRecordsEnd) -> SessionState:
    """The last record: the session as it is to be shown. Raises INVALID_ARGUMENT if it is not what
    was announced, and SESSION_RUNNING if a brain would have been at work on it.
    """
    state, wanted = done.state, done.wanted
    for path, found in (("events", state.head_seq), ("waiting", state.waiting.total)):
        if not found == getattr(wanted, path) == getattr(end, path):
            raise refuse(
                path,
                f"{found} came, {getattr(wanted, path)} were announced and {getattr(end, path)} "
                "counted at the end: the export is not whole",
            )
    if done.status in {Status.RUNNING, Status.RESCHEDULING}:
        raise exported_while_running()
    if done.status is not state.activity.status:
        raise refuse("session.status", "is not what the log says")
    for thread in done.threads:
        if done.of_threads[thread.id] is not thread.activity.status:
            raise refuse("session.threads", f"the log says otherwise of {thread.id}")
    if session.stop_of(wanted.stop_reason) is not state.stop:
        raise refuse("session.stop_reason", "is not what the log says")
    if state.stop is Stop.REQUIRES_ACTION and not state.unanswered and not state.ended:
        raise exported_while_running()
    if not state.ended and inbox.needs_brain(state.stop, state.waiting):
        raise exported_while_running()
    return state


def _check_ids(
    tx: CopyTransaction, session_id: str, events: Sequence[event_pb2.Event], what: str
) -> None:
    ids = {event.id for event in events}
    if not all(0 < len(one) <= _MAX_ID and one.isprintable() for one in ids):
        raise refuse(what, f"an id has 1 to {_MAX_ID} characters, all of them printable")
    repeated = tx.logged(session_id, ids) if len(ids) == len(events) else ids
    if repeated:
        raise refuse(what, f"two events have the same id, among them {min(repeated)}")


def _entry(done: Import, event: event_pb2.Event) -> LogEntry:
    state = done.state
    path = f"event {state.head_seq + 1}"
    if event.seq != state.head_seq + 1:
        raise refuse(path, f"its position is {event.seq}: positions have no gaps")
    if event.ByteSize() > MAX_EVENT_BYTES:
        raise refuse(path, f"is larger than {MAX_EVENT_BYTES // 1024**2} MB")
    at = micros(event.processed_at, f"{path}: processed_at")
    if at < state.head_at:
        raise refuse(path, "its time lies before that of the event before it")
    if at > done.now + _CLOCKS_APART:
        raise refuse(path, "its time lies in the future")
    if event.HasField("session_deleted"):
        raise refuse(path, "session.deleted is in no log")
    state.head_seq, state.head_at = event.seq, at
    return LogEntry(event, events_of.event_type(event))


def _fold_status(done: Import, event: event_pb2.Event) -> None:
    name = events_of.variant(event)
    if (status := session.status_of(name)) is not None:
        if done.status is Status.TERMINATED:
            raise refuse(f"event {event.seq}", "nothing runs behind session.status_terminated")
        done.status = status
        if status is Status.IDLE:
            done.state.stop = session.stop_of(event.session_status_idle.stop_reason)
    elif (of_thread := session.thread_status_of(event, name)) is not None:
        thread_id, status = of_thread
        if thread_id in done.of_threads:
            done.of_threads[thread_id] = status


def _type(event: event_pb2.Event) -> str:
    return events_of.event_type(event) or "an event of an unknown type"


class _Calls:
    """The calls that a step opens, answers and closes."""

    def __init__(
        self, tx: CopyTransaction, state: SessionState, events: Sequence[event_pb2.Event]
    ) -> None:
        self._state = state
        self._opened: dict[str, Call] = {}
        self._changed: dict[str, Call] = {}
        named = {events_of.result_of(event, events_of.variant(event)) for event in events}
        named |= {event.user_tool_confirmation.tool_use_id for event in events}
        self._known = tx.calls(state.id, [one for one in named if one])

    def fold(self, event: event_pb2.Event) -> None:
        """Takes note of the next event."""
        name, path = events_of.variant(event), f"event {event.seq}"
        kind = events_of.opened_call(event, name, self_hosted=self._state.self_hosted)
        if kind is not None:
            self._opened[event.id] = Call(event.id, kind)
            self._state.unanswered += kind in WAIT_FOR_CLIENT
        elif (call_id := events_of.result_of(event, name)) is not None:
            call = self._call(call_id)
            if call is None or call.state is CallState.CLOSED:
                raise refuse(path, f"is a result of {call_id}, which is no call without one")
            self._change(
                call, dataclasses.replace(call, state=CallState.CLOSED, result_id=event.id)
            )
        elif name == "user_tool_confirmation":
            confirmation = event.user_tool_confirmation
            call = self._call(confirmation.tool_use_id)
            if call is None or call.kind not in ASKED:
                raise refuse(path, "confirms a call that was not asked for")
            if call.state is CallState.OPEN:
                self._change(call, call.confirmed(confirmation.result))

    def _call(self, call_id: str) -> Call | None:
        return self._opened.get(call_id) or self._changed.get(call_id) or self._known.get(call_id)

    def _change(self, before: Call, after: Call) -> None:
        self._state.unanswered += after.awaited - before.awaited
        (self._opened if before.id in self._opened else self._changed)[before.id] = after

    def store(self, tx: CopyTransaction) -> None:
        """Writes what has become of them."""
        if self._opened:
            tx.open_calls(self._state.id, list(self._opened.values()))
        if self._changed:
            tx.save_calls(self._state.id, list(self._changed.values()))
