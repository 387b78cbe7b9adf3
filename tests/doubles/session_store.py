"""Sessions in memory: the plainest thing that keeps the store's promises."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import itertools
from typing import TYPE_CHECKING

from drover.event.v1 import event_pb2
from services.session.domain import lease
from services.session.domain.log import micros_of
from services.session.domain.ports import (
    UNKNOWN,
    CallState,
    HandRelease,
    InboxEntry,
    Need,
    Peek,
    Stalled,
)
from services.session.domain.session import SessionDetails, SessionState, Status, ThreadState
from storage.answers import Kept, decide
from tests.doubles.session_files import MemoryFiles
from tests.doubles.session_work import MemoryWork

if TYPE_CHECKING:
    from services.session.domain.ports import Call
    from services.session.domain.work import WorkItem
    from tests.doubles.session_files import KeptDeletion


@dataclasses.dataclass
class KeptSession:
    state: SessionState
    details: SessionDetails
    threads: dict[str, ThreadState]
    log: list[tuple[str, bytes]] = dataclasses.field(default_factory=list)
    inbox: list[InboxEntry] = dataclasses.field(default_factory=list)
    calls: dict[str, Call] = dataclasses.field(default_factory=dict)

    def copy(self):
        """A copy to change. What is in it is replaced, never changed."""
        return KeptSession(
            self.state,
            self.details,
            dict(self.threads),
            list(self.log),
            list(self.inbox),
            dict(self.calls),
        )


@dataclasses.dataclass
class _Tables:
    sessions: dict[str, KeptSession] = dataclasses.field(default_factory=dict)
    releases: dict[int, tuple[HandRelease, int]] = dataclasses.field(default_factory=dict)
    files: dict[int, KeptDeletion] = dataclasses.field(default_factory=dict)
    answers: dict[bytes, Kept] = dataclasses.field(default_factory=dict)
    work: dict[str, WorkItem] = dataclasses.field(default_factory=dict)
    pollers: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)

    def copy(self):
        sessions = {session_id: kept.copy() for session_id, kept in self.sessions.items()}
        return _Tables(
            sessions,
            dict(self.releases),
            dict(self.files),
            dict(self.answers),
            dict(self.work),
            dict(self.pollers),
        )


class MemoryStore:
    """A `SessionStore` whose transactions are copies, swapped in when they succeed."""

    def __init__(self, clock):
        self._clock = clock
        self._tables = _Tables()
        self._ids = itertools.count(1)

    async def read(self, fn):
        before = self._tables.copy()
        result = self.run(fn, keep=False)
        if self._tables != before:
            msg = "a transaction that reads has written"
            raise TypeError(msg)
        return result

    async def write(self, fn, *, about=UNKNOWN):  # nothing here gets quicker by it
        return self.run(fn, keep=True)

    def submit(self, fn, *, about=UNKNOWN):
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self.run(fn, keep=True))
        except Exception as error:  # noqa: BLE001  # its caller's
            future.set_exception(error)
        return future

    def run(self, fn, *, keep=True):
        tables = self._tables.copy() if keep else self._tables
        now = int(self._clock.now().timestamp() * 1_000_000)
        result = fn(MemoryTransaction(tables, now, self._ids))
        if keep:
            self._tables = tables
        return result


class MemoryTransaction(MemoryFiles, MemoryWork):
    """One transaction over a copy of everything."""

    def __init__(self, tables, now, ids):
        self._tables = tables
        self._now = now
        self._ids = ids

    def now(self):
        return self._now

    def _kept(self, session_id):
        return self._tables.sessions[session_id]

    def state(self, ref):
        kept = self._tables.sessions.get(ref.session_id)
        if kept is None or kept.state.workspace_id != ref.workspace_id:
            return None
        return kept.state.copy()

    def details(self, session_id):
        return copy.deepcopy(self._kept(session_id).details)

    def create(self, state, details, thread):
        kept = KeptSession(state.copy(), copy.deepcopy(details), {thread.id: copy.deepcopy(thread)})
        self._tables.sessions[state.id] = kept

    def save(self, state):
        self._kept(state.id).state = state.copy()

    def save_details(self, session_id, details):
        self._kept(session_id).details = copy.deepcopy(details)

    def remove(self, session_id):
        del self._tables.sessions[session_id]
        self.remove_work(session_id)
        for key_id, kept in self._tables.answers.items():
            if kept.about == session_id:
                self._tables.answers[key_id] = kept._replace(answer=None)

    def sessions(self, query):
        found = [
            kept
            for kept in self._tables.sessions.values()
            if _matches(kept.state, query) and _has_store(kept.details, query.memory_store_id)
        ]
        found.sort(key=lambda kept: _place(kept.state), reverse=query.descending)
        if query.key is not None:
            beyond = (
                (lambda one: one < query.key) if query.descending else (lambda one: one > query.key)
            )
            found = [kept for kept in found if beyond(_place(kept.state))]
        return [(kept.state.copy(), copy.deepcopy(kept.details)) for kept in found[: query.limit]]

    def threads(self, session_id):
        threads = copy.deepcopy(list(self._kept(session_id).threads.values()))
        return sorted(
            threads, key=lambda one: (one.parent_thread_id is not None, one.created_at, one.id)
        )

    def save_thread(self, thread):
        self._kept(thread.session_id).threads[thread.id] = copy.deepcopy(thread)

    def append(self, session_id, entries):
        log = self._kept(session_id).log
        for entry in entries:
            assert entry.event.seq == len(log) + 1, "positions are dense"
            assert entry.event.id not in self.logged(session_id, [entry.event.id]), "ids are unique"
            log.append((entry.type, entry.event.SerializeToString()))

    def _events(self, session_id):
        return [event_pb2.Event.FromString(body) for _, body in self._kept(session_id).log]

    def log(self, session_id, query):
        found = [
            body
            for event_type, body in self._kept(session_id).log
            if _in_slice(event_pb2.Event.FromString(body), event_type, query)
        ]
        if query.descending:
            found.reverse()
        kept, more = _within(found, len, query)
        return [event_pb2.Event.FromString(body) for body in kept], more

    def stored_log(self, session_id, query):
        return [event.SerializeToString() for event in self.log(session_id, query)[0]]

    def positions(self, session_id, query):
        everything = dataclasses.replace(query, max_bytes=1 << 60)
        return [event.seq for event in self.log(session_id, everything)[0]]

    def first_at(self, session_id, head, micros):
        events = self._events(session_id)[:head]
        return next((one.seq for one in events if micros_of(one) >= micros), head + 1)

    def logged(self, session_id, event_ids, *, surely=True):
        return {event.id for event in self._events(session_id)} & set(event_ids)

    def find(self, session_id, event_ids):
        waiting = [one.event for one in self._kept(session_id).inbox if one.taken_seq is None]
        known = {event.id: event for event in waiting + self._events(session_id)}
        return {one: copy.deepcopy(known[one]) for one in event_ids if one in known}

    def enqueue(self, session_id, entries):
        self._kept(session_id).inbox += copy.deepcopy(list(entries))

    def waiting(self, session_id, kinds, limit):
        waiting = [
            entry
            for entry in self._kept(session_id).inbox
            if entry.taken_seq is None and entry.kind in kinds
        ]
        return copy.deepcopy(waiting[:limit])

    def take(self, session_id, taken):
        seqs = dict(taken)
        kept = self._kept(session_id)
        kept.inbox = [
            dataclasses.replace(entry, taken_seq=seqs.get(entry.position, entry.taken_seq))
            for entry in kept.inbox
        ]

    def inbox(self, session_id, query):
        events = self._events(session_id)
        found = [
            entry
            if entry.taken_seq is None
            else dataclasses.replace(entry, event=events[entry.taken_seq - 1])
            for entry in self._kept(session_id).inbox
            if query.after < entry.position <= query.upto
            and (entry.taken_seq is None or entry.taken_seq > query.head)
            and (not query.types or entry.type in query.types)
        ]
        if query.descending:
            found.reverse()
        kept, more = _within(found, lambda entry: entry.event.ByteSize(), query)
        return copy.deepcopy(kept), more

    def calls(self, session_id, call_ids):
        calls = self._kept(session_id).calls
        return {call_id: calls[call_id] for call_id in call_ids if call_id in calls}

    def open_calls(self, session_id, calls):
        self._kept(session_id).calls |= {call.id: call for call in calls}

    def save_calls(self, session_id, calls):
        self._kept(session_id).calls |= {call.id: call for call in calls}

    def answer(self, key):
        return decide(self._tables.answers.get(key.id), key, self._now)

    def keep_answer(self, key, answer, session_id):
        self._tables.answers[key.id] = Kept.of(key, self._now, answer, session_id)

    def forget_answers(self, limit):
        kept = self._tables.answers.values()
        expired = [one.id for one in kept if one.expires_at <= self._now][:limit]
        for key_id in expired:
            del self._tables.answers[key_id]
        return len(expired)

    def needs(self, limit, *, settled_micros=0):
        before = self._now - settled_micros
        states = [kept.state for kept in self._tables.sessions.values()]
        found = [
            Need(state.ref, state.generation, state.lease_expires_at is not None)
            for state in sorted(states, key=lambda state: state.updated_at)
            if state.needs_brain
            and (
                state.updated_at <= before
                if state.lease_expires_at is None
                else state.lease_expires_at <= before
            )
        ]
        return found[:limit]

    def stalled(self, before, limit, workspace_id=None):
        kept = [
            kept
            for kept in self._tables.sessions.values()
            if kept.state.needs_brain
            and kept.state.head_at <= before
            and workspace_id in (None, kept.state.workspace_id)
        ]
        return [
            Stalled(
                one.state.ref,
                since=None
                if one.state.activity.status is Status.IDLE
                else max(one.state.head_at, one.state.activity.running_since or 0),
                head_seq=one.state.head_seq,
                last_type=one.log[-1][0] if one.log else "",
                held=lease.is_live(one.state, self._now),
                holder=one.state.holder,
                generation=one.state.generation,
                calling=any(call.state is not CallState.CLOSED for call in one.calls.values()),
            )
            for one in sorted(kept, key=lambda one: one.state.updated_at)
        ][:limit]

    def peek(self, session_ids):
        kept = self._tables.sessions
        states = [kept[one].state for one in session_ids if one in kept]
        return {
            state.id: Peek(
                state.ref,
                head_seq=state.head_seq,
                inbox_tail=state.inbox_tail,
                waiting=state.copy().waiting,
                generation=state.generation,
                held=state.lease_expires_at is not None,
                ended=state.ended,
            )
            for state in states
        }

    def request_release(self, ref, generation, *, purge, secrets=False):
        release = HandRelease(next(self._ids), ref, generation, purge, secrets)
        self._tables.releases[release.id] = release, self._now

    def lease_releases(self, limit, lease_micros):
        due = [release for release, at in self._tables.releases.values() if at <= self._now]
        for release in due[:limit]:
            self._tables.releases[release.id] = release, self._now + lease_micros
        return due[:limit]

    def finish_release(self, release_id):
        self._tables.releases.pop(release_id, None)

    def postpone_release(self, release_id, delay_micros):
        if release_id not in self._tables.releases:
            return  # struck off already
        release, _ = self._tables.releases[release_id]
        again = dataclasses.replace(release, attempts=release.attempts + 1)
        self._tables.releases[release_id] = again, self._now + delay_micros


def _place(state):
    return state.created_at, state.id


def _matches(state, query):
    low, high = query.created.low, query.created.high
    return (
        state.workspace_id == query.workspace_id
        and query.agent_id in {None, state.agent_id}
        and query.agent_version in {None, state.agent_version}
        and (low is None or state.created_at >= low)
        and (high is None or state.created_at <= high)
        and (query.include_archived or state.archived_at is None)
        and (not query.statuses or state.status in query.statuses)
    )


def _has_store(details, store_id):
    given = (one.memory_store.memory_store_id for one in details.resources)
    return store_id is None or store_id in given


def _in_slice(event, event_type, query):
    return (
        query.after < event.seq <= query.upto
        and (not query.types or event_type in query.types)
        and (not query.threads or event.thread_id in query.threads)
    )


def _within(found, size, query):
    taken, used = [], 0
    for one in found:
        if taken and (len(taken) == query.limit or used + size(one) > query.max_bytes):
            return taken, True
        taken.append(one)
        used += size(one)
    return taken, False
