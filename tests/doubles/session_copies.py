"""Copies in memory, over the store in memory."""

from __future__ import annotations

import copy
import dataclasses

from drover.event.v1 import event_pb2
from services.session.domain.accept import not_found
from services.session.domain.copies import (
    STEP_BYTES,
    STEP_EVENTS,
    being_made,
    exists_already,
    given_up,
)
from services.session.domain.ports import Call, CallState
from services.session.domain.renaming import rename_threads
from services.session.domain.session import SessionRef
from tests.doubles.session_store import KeptSession, MemoryTransaction

NOBODYS = "unfinished"
_DISCARDED = 1000


class MemoryCopyStore:
    """A `CopyStore` over the sessions of a `MemoryStore`."""

    def __init__(self, store):
        self._store = store

    async def step(self, fn):
        return self._store.run(lambda tx: fn(MemoryCopying(tx)))


class MemoryCopying(MemoryTransaction):
    """One step."""

    def __init__(self, tx):
        super().__init__(tx._tables, tx._now, tx._ids)

    def _hidden(self, session_id):
        kept = self._tables.sessions.get(session_id)
        if kept is None or kept.state.workspace_id != NOBODYS:
            raise given_up(session_id)
        return kept

    def _touch(self, session_id):
        kept = self._hidden(session_id)
        kept.state = dataclasses.replace(kept.state, updated_at=self._now)
        return kept

    def begin(self, state, details, threads):
        there = self._tables.sessions.get(state.id)
        if there is not None:
            make = being_made if there.state.workspace_id == NOBODYS else exists_already
            raise make(f"session {state.id}")
        taken = {one for kept in self._tables.sessions.values() for one in kept.threads}
        for thread in threads:
            if thread.id in taken:
                raise exists_already(f"thread {thread.id}")
        hidden = dataclasses.replace(state.copy(), workspace_id=NOBODYS, updated_at=self._now)
        self._tables.sessions[state.id] = KeptSession(
            hidden,
            copy.deepcopy(details),
            {thread.id: copy.deepcopy(thread) for thread in threads},
        )

    def append(self, session_id, entries):
        self._touch(session_id)
        super().append(session_id, entries)

    def enqueue(self, session_id, entries):
        self._touch(session_id)
        super().enqueue(session_id, entries)

    def copy(self, stretch):
        target = self._touch(stretch.target_id)
        source = self._tables.sessions.get(stretch.source_id)
        if source is None or len(source.log) < stretch.upto:
            raise not_found(SessionRef("", stretch.source_id))
        at, used = stretch.after, 0
        results = {
            event_pb2.Event.FromString(body).id: place
            for place, (_, body) in enumerate(source.log, start=1)
        }
        while at < stretch.upto and at - stretch.after < STEP_EVENTS:
            kind, body = source.log[at]
            if used and used + len(body) > STEP_BYTES:
                break
            used += len(body)
            at += 1
            event = event_pb2.Event.FromString(body)
            rename_threads(event, stretch.threads)
            target.log.append((kind, event.SerializeToString()))
            if (call := source.calls.get(event.id)) is not None:
                if results.get(call.result_id, stretch.upto + 1) > stretch.upto:
                    call = Call(call.id, call.kind)
                target.calls[call.id] = call
        return at

    def unfinished_calls(self, session_id):
        kept = self._hidden(session_id)
        types = {event_pb2.Event.FromString(body).id: kind for kind, body in kept.log}
        return [
            (kept.calls[one], kind)
            for one, kind in types.items()
            if one in kept.calls and kept.calls[one].state is not CallState.CLOSED
        ]

    def publish(self, state):
        self._hidden(state.id).state = state.copy()

    def discard(self, session_id):
        kept = self._tables.sessions.get(session_id)
        if kept is None or kept.state.workspace_id != NOBODYS:
            return True
        if len(kept.log) > _DISCARDED:
            del kept.log[-_DISCARDED:]
            return False
        del self._tables.sessions[session_id]
        return True

    def abandoned(self, before):
        return [
            kept.state.id
            for kept in self._tables.sessions.values()
            if kept.state.workspace_id == NOBODYS and kept.state.updated_at < before
        ]
