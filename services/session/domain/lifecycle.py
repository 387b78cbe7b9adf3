"""Creating, archiving and deleting sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2, session_event_pb2
from services.session.domain import event as events_of
from services.session.domain import inbox, lease, log, queue
from services.session.domain.accept import EVENT_PREFIX, accept_initial, not_found
from services.session.domain.news import News
from services.session.domain.resources import kinds
from services.session.domain.session import (
    SessionDetails,
    SessionRef,
    SessionState,
    Status,
    ThreadState,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.ids import IdSource
    from services.session.domain.ports import LogEntry, Transaction


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session as it is read: its state, the large part of it, and when."""

    state: SessionState
    details: SessionDetails
    now: int


def create(
    tx: Transaction,
    workspace_id: str,
    details: SessionDetails,
    initial: Sequence[event_pb2.Event],
    ids: IdSource,
    *,
    session_id: str = "",
) -> tuple[Snapshot, News]:
    """Creates a session: idle, or running at once with what waits in its inbox from birth.

    `session_id` is given where something is kept elsewhere under it already. Raises UNAVAILABLE
    when copies of files that were made for it have been given up meanwhile.
    """
    now = tx.now()
    kinds.stamp(details.resources, now)
    state = SessionState(
        id=session_id or ids("sesn"),
        workspace_id=workspace_id,
        agent_id=details.agent.id,
        agent_version=details.agent.version,
        primary_thread_id=ids("sthr"),
        created_at=now,
        updated_at=now,
        self_hosted=details.environment.HasField("self_hosted"),
    )
    thread = ThreadState(state.primary_thread_id, state.id, created_at=now, updated_at=now)
    queued = accept_initial(state, initial, ids)
    if queued:
        state.activity.enter(Status.RUNNING, now)
        state.needs_brain = True
    if kinds.files(details.resources):
        tx.keep_files(state.ref)
    tx.create(state, details, thread)
    if queued:
        tx.enqueue(state.id, queued)
    work = queue.see_to(tx, state, ids)
    return Snapshot(state, details, now), News(state.ref, wake=state.needs_brain, work=work)


def read(tx: Transaction, ref: SessionRef) -> Snapshot:
    """Reads a session. Raises NOT_FOUND."""
    state = tx.state(ref)
    if state is None:
        raise not_found(ref)
    return Snapshot(state, tx.details(ref.session_id), tx.now())


def archive(tx: Transaction, ref: SessionRef, ids: IdSource) -> tuple[Snapshot, News]:
    """Ends a session for good; its log stays readable. Archiving again changes nothing.

    What still waits in its inbox enters the log, so that nothing sent to it is lost. Raises
    NOT_FOUND, and SESSION_RUNNING while it runs or is about to.
    """
    snapshot = read(tx, ref)
    state, now = snapshot.state, snapshot.now
    if state.archived_at is not None:
        return snapshot, News(ref)
    check_idle(state, "archived")
    fenced = lease.is_live(state, now)
    if fenced:
        lease.revoke(state)
    entries: list[LogEntry] = []
    if state.activity.status is not Status.TERMINATED:
        entries = _flush(tx, state, now)
        entries += _terminate(tx, snapshot, ids)
        tx.append(state.id, entries)
    state.archived_at = state.updated_at = now
    tx.save(state)
    queue.end(tx, state)
    if not state.self_hosted:  # its workers' machines are not ours to clear
        secrets = bool(kinds.repositories(snapshot.details.resources))
        tx.request_release(ref, state.generation, purge=False, secrets=secrets)
    news = News(
        ref,
        stamped=[entry.event for entry in entries],
        generation=state.generation,
        ends=True,
        fenced=fenced,
    )
    return snapshot, news


def _flush(tx: Transaction, state: SessionState, now: int) -> list[LogEntry]:
    waiting = inbox.everything(tx, state.id, state.waiting) if state.waiting.total else []
    entries = [log.stamp(state, entry.event, entry.type, now) for entry in waiting]
    for entry in waiting:
        state.waiting.add(entry.kind, -1)
    if waiting:
        seqs = [entry.event.seq for entry in entries]
        tx.take(state.id, [(entry.position, seq) for entry, seq in zip(waiting, seqs, strict=True)])
    return entries


def _terminate(tx: Transaction, snapshot: Snapshot, ids: IdSource) -> list[LogEntry]:
    state, now, name = snapshot.state, snapshot.now, snapshot.details.agent.name
    entries = []
    for thread in tx.threads(state.id):
        if thread.activity.status is not Status.TERMINATED:
            thread.activity.enter(Status.TERMINATED, now)
            thread.updated_at = thread.archived_at = now
            tx.save_thread(thread)
            ended = session_event_pb2.SessionThreadStatusTerminated(
                session_thread_id=thread.id, agent_name=name
            )
            event = event_pb2.Event(id=ids(EVENT_PREFIX), session_thread_status_terminated=ended)
            entries.append(log.stamp(state, event, events_of.event_type(event), now))
    event = event_pb2.Event(
        id=ids(EVENT_PREFIX), session_status_terminated=session_event_pb2.SessionStatusTerminated()
    )
    entries.append(log.stamp(state, event, events_of.event_type(event), now))
    state.activity.enter(Status.TERMINATED, now)
    return entries


def delete(tx: Transaction, ref: SessionRef) -> News:
    """Removes a session, its log, and in time its hand with the workspace.

    Raises NOT_FOUND, and SESSION_RUNNING while it runs or is about to.
    """
    state = tx.state(ref)
    if state is None:
        raise not_found(ref)
    check_idle(state, "deleted")
    if state.self_hosted:  # of a long log it takes a while until all is gone
        tx.remove_work(ref.session_id)
    tx.remove(ref.session_id)
    # Of one that workers serve, too: calls to its MCP servers are made here.
    tx.request_release(ref, state.generation, purge=True, secrets=True)
    fenced = lease.is_live(state, tx.now())
    return deleted(ref, max(tx.now(), state.head_at), fenced=fenced)


def deleted(ref: SessionRef, at: int, *, fenced: bool) -> News:
    """The news of a session that is no more.

    Its event is in no log. Its id is made of the session's, so that all who see it, wherever they
    follow the session, see the same one.
    """
    event = event_pb2.Event(
        id=f"{EVENT_PREFIX}_{ref.session_id.partition('_')[2]}",
        session_deleted=session_event_pb2.SessionDeleted(),
    )
    event.processed_at.CopyFrom(log.timestamp(at))
    return News(ref, stamped=[event], ends=True, deleted=True, fenced=fenced)


def check_idle(state: SessionState, verb: str) -> None:
    """Raises SESSION_RUNNING for a session that runs, or that a brain is needed for."""
    if state.busy:
        raise DroverError(
            Reason.SESSION_RUNNING,
            f"a running session cannot be {verb}: send user.interrupt and wait until it is idle",
        )
