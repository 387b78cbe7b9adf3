"""The domain's transaction over a unit of work: writes wait in memory, reads know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drover.event.v1 import event_pb2
from services.session.store import (
    calls,
    events,
    inbox,
    memory_stores,
    releases,
    sessions,
    slices,
    stalled,
    threads,
)
from services.session.store.work_part import WorkPart
from storage import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sqlalchemy import Connection

    from drover.api.v1.request_key_pb2 import RequestKey
    from services.session.domain.event import InputClass
    from services.session.domain.ports import (
        Call,
        HandRelease,
        InboxEntry,
        InboxQuery,
        LogEntry,
        LogQuery,
        Need,
        Peek,
        SessionQuery,
        Stalled,
    )
    from services.session.domain.session import (
        SessionDetails,
        SessionRef,
        SessionState,
        ThreadState,
    )
    from services.session.store.pairs import Pair

    Find = Callable[[Connection, str, Collection[str]], Mapping[str, bytes]]


class SqlTransaction(WorkPart):
    """One transaction of a unit: see `ports.Transaction`. Ends with `keep` or `undo`.

    What can be answered from what the unit knows is; for the rest the database is first told what
    it needs to know. Statements that write at once go through `_settled`.
    """

    __slots__ = ()

    def keep(self) -> None:
        """Has what was written be committed with the unit."""
        self._unit.keep(self._known, self._writes)

    def undo(self) -> None:
        """Leaves no trace of the transaction in its unit."""
        self._unit.undo()

    @property
    def wrote(self) -> bool:
        """Whether anything was written that the database has not been told."""
        return bool(self._writes)

    # sessions and threads

    def state(self, ref: SessionRef) -> SessionState | None:
        """A session's state."""
        if ref.session_id in self._known.sessions:
            row = self._known.sessions[ref.session_id]
        else:
            row = self._unit.session(ref.session_id)
        if row is None or row[1] != ref.workspace_id:
            return None
        return sessions.restored(row)

    def details(self, session_id: str) -> SessionDetails:
        """The large part of a session."""
        row = self._known.details.get(session_id) or self._unit.known.details.get(session_id)
        return sessions.restored_details(
            row or sessions.get_details(self._unit.connection, session_id)
        )

    def create(self, state: SessionState, details: SessionDetails, thread: ThreadState) -> None:
        """Adds a session with its primary thread."""
        row = sessions.stored(state)
        self._known.sessions[state.id] = self._writes.new_sessions[state.id] = row
        large = sessions.stored_details(state.id, details)
        self._known.details[state.id] = self._writes.new_details[state.id] = large
        self._writes.new_threads.append(threads.stored(thread))
        if details.resources:
            self._writes.new_stores += memory_stores.stored(state.id, details)

    def save(self, state: SessionState) -> None:
        """Writes a session's state."""
        row = self._known.sessions[state.id] = sessions.stored(state)
        self._writes.save(row)

    def save_details(self, session_id: str, details: SessionDetails) -> None:
        """Writes the large part of a session."""
        row = sessions.stored_details(session_id, details)
        self._known.details[session_id] = self._writes.details[session_id] = row

    def remove(self, session_id: str) -> None:
        """Removes a session with all that belongs to it."""
        connection = self._settled()
        sessions.remove(connection, session_id)
        answers.withdraw(connection, session_id)
        for known in (self._known, self._unit.known):
            known.forget(session_id)
        self._known.sessions[session_id] = None

    def sessions(self, query: SessionQuery) -> list[tuple[SessionState, SessionDetails]]:
        """A page of sessions."""
        return sessions.page(self._told(*self._both), query)

    def threads(self, session_id: str) -> list[ThreadState]:
        """A session's threads."""
        pending = (w.threads or w.new_threads for w in self._both)
        return threads.of_session(self._told(*pending), session_id)

    def save_thread(self, thread: ThreadState) -> None:
        """Writes a thread."""
        self._writes.threads[thread.id] = threads.stored(thread)

    # log and inbox

    def append(self, session_id: str, entries: Sequence[LogEntry]) -> None:
        """Adds to the log."""
        rows = [events.stored(session_id, entry) for entry in entries]
        self._writes.events.setdefault(session_id, []).extend(rows)
        self._known.events.update({(session_id, row[2]): row[6] for row in rows})

    def log(self, session_id: str, query: LogQuery) -> tuple[list[event_pb2.Event], bool]:
        """A slice of the log."""
        bodies, more = slices.page(self._with_log(session_id), session_id, query)
        return [event_pb2.Event.FromString(body) for body in bodies], more

    def stored_log(self, session_id: str, query: LogQuery) -> list[bytes]:
        """A slice of the log as it is stored."""
        return slices.page(self._with_log(session_id), session_id, query)[0]

    def positions(self, session_id: str, query: LogQuery) -> list[int]:
        """The positions of a slice."""
        return slices.positions(self._with_log(session_id), session_id, query)

    def first_at(self, session_id: str, head: int, micros: int) -> int:
        """The first position stamped at or after a time."""
        return slices.first_at(self._with_log(session_id), session_id, head, micros)

    def logged(
        self, session_id: str, event_ids: Collection[str], *, surely: bool = True
    ) -> set[str]:
        """Those of the ids that are in the log."""
        found, unknown = set(), []
        for event_id in event_ids:
            there = self._event((session_id, event_id))
            if there is None:
                unknown.append(event_id)
            elif there is not False:
                found.add(event_id)
        if unknown and (surely or not self._unit.hopeful):
            found |= events.ids(self._unit.connection, session_id, unknown)
        return found

    def find(self, session_id: str, event_ids: Collection[str]) -> dict[str, event_pb2.Event]:
        """Events by id."""
        connection, bodies = self._unit.connection, dict[str, bytes]()
        for known, find in ((self._event, events.find), (self._queued_id, inbox.find)):
            ask = []
            for event_id in event_ids:
                if event_id in bodies:
                    continue
                body = known((session_id, event_id))
                if isinstance(body, bytes):
                    bodies[event_id] = body
                elif body is not False:
                    ask.append(event_id)
            if ask:
                bodies |= find(connection, session_id, ask)
        return {event_id: event_pb2.Event.FromString(body) for event_id, body in bodies.items()}

    def enqueue(self, session_id: str, entries: Sequence[InboxEntry]) -> None:
        """Adds to the inbox."""
        rows = [inbox.stored(session_id, entry) for entry in entries]
        self._writes.inbox.setdefault(session_id, []).extend(rows)
        self._known.queued_ids.update({(session_id, row[2]): row[6] for row in rows})
        self._known.queued.setdefault(session_id, []).extend(
            (row[1], row[3], row[4], row[6]) for row in rows
        )

    def waiting(
        self, session_id: str, kinds: Collection[InputClass], limit: int
    ) -> list[InboxEntry]:
        """The oldest events that wait."""
        if not kinds:
            return []
        window = self._unit.known.windows.get(session_id)
        if window is not None:
            oldest, complete = window
            later = self._unit.known.queued.get(session_id, []) if complete else []
            latest = self._known.queued.get(session_id, []) if complete else []
            taken = self._unit.known.taken.get(session_id, set()) | self._known.taken.get(
                session_id, set()
            )
            wanted = [
                row for row in (*oldest, *later, *latest) if row[0] not in taken and row[1] in kinds
            ]
            if complete or len(wanted) >= limit:
                return [inbox.restored(row) for row in wanted[:limit]]
        pending = (w.inbox.get(session_id) or w.taken.get(session_id) for w in self._both)
        return inbox.waiting(self._told(*pending), session_id, kinds, limit)

    def take(self, session_id: str, taken: Sequence[tuple[int, int]]) -> None:
        """Marks inbox positions as taken."""
        rows = [(session_id, position, seq) for position, seq in taken]
        self._writes.taken.setdefault(session_id, []).extend(rows)
        self._known.taken.setdefault(session_id, set()).update(row[1] for row in rows)

    def inbox(self, session_id: str, query: InboxQuery) -> tuple[list[InboxEntry], bool]:
        """A slice of the inbox."""
        pending = (
            w.inbox.get(session_id) or w.taken.get(session_id) or w.events.get(session_id)
            for w in self._both
        )
        return slices.inbox_page(self._told(*pending), session_id, query)

    # calls

    def calls(self, session_id: str, call_ids: Collection[str]) -> dict[str, Call]:
        """Tool calls by id."""
        found, unknown = dict[str, "Call"](), []
        for call_id in call_ids:
            pair = session_id, call_id
            for known in (self._known.calls, self._unit.known.calls):
                if pair in known:
                    call = known[pair]
                    if call is not None:
                        found[call_id] = call
                    break
            else:
                unknown.append(call_id)
        if unknown:
            found |= calls.get(self._unit.connection, session_id, unknown)
        return found

    def open_calls(self, session_id: str, new: Sequence[Call]) -> None:
        """Adds calls."""
        by_pair = {(session_id, call.id): call for call in new}
        self._writes.new_calls |= by_pair
        self._known.calls |= by_pair

    def save_calls(self, session_id: str, changed: Sequence[Call]) -> None:
        """Writes the state of calls."""
        for call in changed:
            self._writes.save_call((session_id, call.id), call)
            self._known.calls[session_id, call.id] = call

    # requests that are repeated

    def answer(self, key: RequestKey) -> bytes | None:
        """What a request was answered before."""
        ours = self._known.answers
        kept = ours[key.id] if key.id in ours else self._unit.kept(key)
        return answers.decide(kept, key, self.now())

    def keep_answer(self, key: RequestKey, answer: bytes, session_id: str) -> None:
        """Keeps an answer."""
        kept = answers.Kept.of(key, self.now(), answer, session_id)
        self._known.answers[key.id] = self._writes.answers[key.id] = kept

    def forget_answers(self, limit: int) -> int:
        """Removes answers whose time is over."""
        return answers.forget(self._settled(), self.now(), limit)

    # work for others

    def needs(self, limit: int, *, settled_micros: int = 0) -> list[Need]:
        """Sessions that need a brain and have none."""
        before = self.now() - settled_micros
        return sessions.needs(self._told(*self._both), before, limit)

    def stalled(self, before: int, limit: int, workspace_id: str | None = None) -> list[Stalled]:
        """Sessions that need a brain and do not get on."""
        return stalled.find(self._told(*self._both), self.now(), before, limit, workspace_id)

    def peek(self, session_ids: Collection[str]) -> dict[str, Peek]:
        """How far sessions are."""
        return sessions.peek(self._told(*self._both), session_ids)

    def request_release(
        self, ref: SessionRef, generation: int, *, purge: bool, secrets: bool = False
    ) -> None:
        """Notes that a session's hand must go."""
        self._writes.releases.append((ref, generation, purge, secrets, self.now()))

    def lease_releases(self, limit: int, lease_micros: int) -> list[HandRelease]:
        """Releases whose time has come, for this caller alone."""
        now = self.now()
        return releases.lease(self._settled(), now, limit, now + lease_micros)

    def finish_release(self, release_id: int) -> None:
        """Strikes a release off the list."""
        self._writes.finished.append(release_id)

    def postpone_release(self, release_id: int, delay_micros: int) -> None:
        """Has a failed release tried again later."""
        self._writes.postponed.append((release_id, self.now() + delay_micros))

    # what is known, and what the database must be told

    def _event(self, pair: Pair) -> bytes | bool | None:
        """The body of an event of the log, or whether there is one; `None` if not known."""
        found = self._known.events.get(pair)
        return self._unit.known.events.get(pair) if found is None else found

    def _queued_id(self, pair: Pair) -> bytes | bool | None:
        """As `_event`, for the inbox."""
        found = self._known.queued_ids.get(pair)
        return self._unit.known.queued_ids.get(pair) if found is None else found

    def _with_log(self, session_id: str) -> Connection:
        """The connection, once the database was told what was appended to the session."""
        return self._told(*(w.events.get(session_id) for w in self._both))
