"""What a store of sessions keeps, in short form: for the tests of the store itself."""

from __future__ import annotations

from services.session.domain.event import InputClass
from services.session.domain.ports import InboxEntry, LogEntry, LogQuery
from services.session.domain.session import MICROS, SessionRef, SessionState, ThreadState
from tests.doubles.session_events import said
from tests.doubles.session_world import WORKSPACE, details

REF = SessionRef(WORKSPACE, "sesn_1")
EVERYTHING = LogQuery(0, 100_000, limit=100_000, max_bytes=1 << 30)


def state(session_id="sesn_1", created_at=1, **fields):
    return SessionState(
        id=session_id,
        workspace_id=fields.pop("workspace_id", WORKSPACE),
        agent_id=fields.pop("agent_id", "agent_1"),
        agent_version=fields.pop("agent_version", 1),
        primary_thread_id=f"sthr_{session_id}",
        created_at=created_at,
        updated_at=fields.pop("updated_at", created_at),
        **fields,
    )


async def create(store, one=None, **detail_fields):
    one = one or state()
    thread = ThreadState(one.primary_thread_id, one.id, one.created_at, one.created_at)
    await store.write(lambda tx: tx.create(one, details(**detail_fields), thread))
    return one


def stamped(seq, event=None, at=None):
    event = event or said(f"text {seq}", f"e{seq}")
    event.seq = seq
    event.processed_at.FromMicroseconds(seq * MICROS if at is None else at)
    kind = "user.message" if event.HasField("user_message") else "agent.message"
    return LogEntry(event, kind)


def waiting(position, event, kind=InputClass.MESSAGE):
    return InboxEntry(position, kind, "user.message", event)


async def fill(store, count=5):
    await create(store)
    entries = [stamped(seq) for seq in range(1, count + 1)]
    await store.write(lambda tx: tx.append("sesn_1", entries))


def bump(ref=REF):
    """A write that appends one event to a session and answers its position."""

    def fn(tx):
        one = tx.state(ref)
        one.head_seq += 1
        event = said("x", f"e{one.head_seq}")
        tx.append(ref.session_id, [stamped(one.head_seq, event)])
        tx.save(one)
        return one.head_seq

    return fn


def seqs(result):
    events, more = result
    return [event.seq for event in events], more


async def positions(store, ref=REF):
    """The positions of a session's log, as they are stored."""
    return seqs(await store.read(lambda tx: tx.log(ref.session_id, EVERYTHING)))[0]
