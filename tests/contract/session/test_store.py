"""What every store of sessions keeps to, over SQLite and in memory alike."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from drover.event.v1 import event_pb2, usage_pb2
from services.session.domain.event import CallKind, InputClass
from services.session.domain.ports import (
    Call,
    CallState,
    InboxEntry,
    InboxQuery,
    LogEntry,
    LogQuery,
    SessionQuery,
    TimeRange,
)
from services.session.domain.session import (
    Activity,
    SessionRef,
    SessionState,
    Status,
    Stop,
    ThreadState,
    Waiting,
)
from services.session.store.schema import SCHEMA
from services.session.store.store import SqlSessionStore
from storage import open_database
from tests.doubles.session_events import interrupt, message, said
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_world import WORKSPACE, ManualClock, details, other_workspace

MICROS = 1_000_000
REF = SessionRef(WORKSPACE, "sesn_1")
EVERYTHING = LogQuery(0, 1000, limit=1000, max_bytes=1 << 30)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["sqlite", "memory"])
async def store(request, tmp_path, clock):
    if request.param == "memory":
        yield MemoryStore(clock)
        return
    database = await open_database(f"sqlite:///{tmp_path / 'session.db'}", SCHEMA)
    sql = SqlSessionStore(database, clock)
    yield sql
    await database.close()


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


def seqs(result):
    events, more = result
    return [event.seq for event in events], more


async def test_a_state_comes_back_as_it_was_written(store):
    await create(store)
    full = state(
        archived_at=2,
        activity=Activity(Status.TERMINATED, 3, 4, 5),
        stop=Stop.REQUIRES_ACTION,
        head_seq=6,
        head_at=7,
        inbox_tail=8,
        waiting=Waiting(9, 10, 11),
        unanswered=12,
        needs_brain=True,
        generation=13,
        holder="brain",
        lease_expires_at=14,
        usage=usage_pb2.UsageSnapshot(input_tokens=15).SerializeToString(),
        updated_at=16,
    )
    await store.write(lambda tx: tx.save(full))
    assert await store.read(lambda tx: tx.state(REF)) == full


async def test_the_large_part_comes_back_as_it_was_written(store):
    await create(store, title="Flock", metadata={"a": "é", "b": ""})
    large = await store.read(lambda tx: tx.details("sesn_1"))
    assert large == details(title="Flock", metadata={"a": "é", "b": ""})
    changed = dataclasses.replace(large, title=None, metadata={})
    await store.write(lambda tx: tx.save_details("sesn_1", changed))
    assert await store.read(lambda tx: tx.details("sesn_1")) == changed


async def test_another_workspace_does_not_see_a_session(store):
    await create(store)
    assert await store.read(lambda tx: tx.state(other_workspace(REF))) is None
    query = SessionQuery("wrkspc_other", limit=10)
    assert await store.read(lambda tx: tx.sessions(query)) == []


async def test_nothing_is_kept_of_a_transaction_that_fails(store):
    await create(store)
    before = await store.read(lambda tx: tx.state(REF))

    def fail(tx):
        tx.save(dataclasses.replace(before, head_seq=1, generation=9))
        tx.append("sesn_1", [stamped(1)])
        tx.enqueue("sesn_1", [waiting(1, message("hi", "m1"))])
        tx.open_calls("sesn_1", [Call("c1", CallKind.ASK)])
        tx.request_release(REF, purge=True)
        msg = "no"
        raise LookupError(msg)

    with pytest.raises(LookupError):
        await store.write(fail)
    assert await store.read(lambda tx: tx.state(REF)) == before
    assert await store.read(lambda tx: tx.find("sesn_1", ["e1", "m1"])) == {}
    assert await store.read(lambda tx: tx.calls("sesn_1", ["c1"])) == {}
    assert await store.read(lambda tx: tx.due_releases(10)) == []


async def test_a_transaction_sees_its_own_writes(store):
    await create(store)

    def fn(tx):
        tx.append("sesn_1", [stamped(1)])
        tx.enqueue("sesn_1", [waiting(1, message("hi", "m1"))])
        return tx.logged("sesn_1", ["e1"]), tx.waiting("sesn_1", tuple(InputClass), 9)

    logged, inbox = await store.write(fn)
    assert logged == {"e1"}
    assert [entry.position for entry in inbox] == [1]


async def test_time_stands_still_in_a_transaction_and_is_the_clocks(store, clock):
    now, again = await store.write(lambda tx: (tx.now(), tx.now()))
    assert now == again == int(clock.now().timestamp() * MICROS)


async def test_the_log_is_sliced_by_position(store):
    await fill(store)
    query = dataclasses.replace(EVERYTHING, after=1, upto=4)
    assert seqs(await store.read(lambda tx: tx.log("sesn_1", query))) == ([2, 3, 4], False)
    back = dataclasses.replace(query, descending=True)
    assert seqs(await store.read(lambda tx: tx.log("sesn_1", back))) == ([4, 3, 2], False)


async def test_a_slice_says_whether_there_is_more(store):
    await fill(store)
    for limit, expected in ((4, ([1, 2, 3, 4], True)), (5, ([1, 2, 3, 4, 5], False))):
        query = dataclasses.replace(EVERYTHING, limit=limit)
        assert seqs(await store.read(lambda tx, query=query: tx.log("sesn_1", query))) == expected


async def test_a_slice_is_bounded_in_bytes_but_never_empty(store):
    await fill(store)
    size = stamped(1).event.ByteSize()
    for max_bytes, count in ((1, 1), (2 * size, 2), (3 * size - 1, 2)):
        query = dataclasses.replace(EVERYTHING, max_bytes=max_bytes)
        events, more = await store.read(lambda tx, query=query: tx.log("sesn_1", query))
        assert (len(events), more) == (count, True)


async def test_the_log_is_filtered_by_type_and_time(store):
    await create(store)
    entries = [stamped(1, message("hi", "m1")), stamped(2), stamped(3)]
    await store.write(lambda tx: tx.append("sesn_1", entries))
    by_type = dataclasses.replace(EVERYTHING, types=("user.message",))
    assert seqs(await store.read(lambda tx: tx.log("sesn_1", by_type))) == ([1], False)
    by_time = dataclasses.replace(EVERYTHING, times=TimeRange(2 * MICROS, 3 * MICROS - 1))
    assert seqs(await store.read(lambda tx: tx.log("sesn_1", by_time))) == ([2], False)


async def test_fields_that_this_release_does_not_know_survive(store):
    await create(store)
    unknown = b"\xba\x3e\x03new"  # field 1,000
    event = event_pb2.Event.FromString(stamped(1).event.SerializeToString() + unknown)
    queued = event_pb2.Event.FromString(message("hi", "m1").SerializeToString() + unknown)
    await store.write(lambda tx: tx.append("sesn_1", [LogEntry(event, "agent.message")]))
    await store.write(lambda tx: tx.enqueue("sesn_1", [waiting(1, queued)]))
    found = await store.read(lambda tx: tx.find("sesn_1", ["e1", "m1"]))
    assert all(unknown in one.SerializeToString() for one in found.values())
    assert len(found) == 2


async def test_the_same_position_or_id_cannot_enter_the_log_twice(store):
    await fill(store, 1)
    for entry in (stamped(1, said("x", "other")), stamped(2, said("x", "e1"))):
        with pytest.raises(Exception, match=r"UNIQUE|dense|unique"):
            await store.write(lambda tx, entry=entry: tx.append("sesn_1", [entry]))


async def test_events_are_found_in_the_log_and_in_the_inbox(store):
    await fill(store, 2)
    await store.write(lambda tx: tx.enqueue("sesn_1", [waiting(1, message("hi", "m1"))]))
    found = await store.read(lambda tx: tx.find("sesn_1", ["e2", "m1", "nowhere"]))
    assert {event_id: event.seq for event_id, event in found.items()} == {"e2": 2, "m1": 0}
    assert await store.read(lambda tx: tx.logged("sesn_1", ["e1", "m1"])) == {"e1"}


async def test_input_waits_in_order_until_it_is_taken(store):
    await create(store)
    entries = [
        waiting(1, message("one", "m1")),
        waiting(2, interrupt(), InputClass.INTERRUPT),
        waiting(3, message("two", "m3")),
    ]
    entries[1].event.id = "m2"

    def read(kinds, limit=9):
        return store.read(
            lambda tx: [entry.position for entry in tx.waiting("sesn_1", kinds, limit)]
        )

    await store.write(lambda tx: tx.enqueue("sesn_1", entries))
    assert await read(tuple(InputClass)) == [1, 2, 3]
    assert await read((InputClass.MESSAGE,), 1) == [1]
    assert await read((InputClass.INTERRUPT, InputClass.CONFIRMATION)) == [2]
    await store.write(lambda tx: tx.take("sesn_1", [(1, 1), (2, 2)]))
    assert await read(tuple(InputClass)) == [3]


async def test_the_inbox_is_listed_as_it_was_when_the_log_ended_there(store):
    await create(store)
    entries = [waiting(n, message(f"text {n}", f"m{n}")) for n in (1, 2, 3, 4)]
    await store.write(lambda tx: tx.enqueue("sesn_1", entries))

    def move(tx):
        for seq in (1, 2):
            tx.append("sesn_1", [stamped(seq, message(f"text {seq}", f"m{seq}"))])
        tx.take("sesn_1", [(1, 1), (2, 2)])

    await store.write(move)

    async def read(**fields):
        query = InboxQuery(
            **{"head": 0, "after": 0, "upto": 9, "limit": 9, "max_bytes": 9999} | fields
        )
        entries, more = await store.read(lambda tx: tx.inbox("sesn_1", query))
        return [(entry.event.id, entry.event.seq) for entry in entries], more

    everything = [("m1", 1), ("m2", 2), ("m3", 0), ("m4", 0)]
    assert await read() == (everything, False)
    assert await read(head=1) == (everything[1:], False)
    assert await read(head=2, descending=True) == (everything[:1:-1], False)
    assert await read(after=1, upto=3) == (everything[1:3], False)
    assert await read(limit=2) == (everything[:2], True)
    assert await read(max_bytes=1) == (everything[:1], True)
    assert await read(types=("user.interrupt",)) == ([], False)


async def test_calls_come_back_as_they_were_written(store):
    await create(store)
    asked, custom = Call("c1", CallKind.ASK), Call("c2", CallKind.CUSTOM)
    await store.write(lambda tx: tx.open_calls("sesn_1", [asked, custom]))
    closed = dataclasses.replace(custom, state=CallState.CLOSED, result_id="e9")
    await store.write(lambda tx: tx.save_calls("sesn_1", [closed]))
    found = await store.read(lambda tx: tx.calls("sesn_1", ["c1", "c2", "c3"]))
    assert found == {"c1": asked, "c2": closed}


async def test_sessions_are_listed_by_age_and_filtered(store):
    ages = {"sesn_1": 10, "sesn_2": 20, "sesn_3": 20, "sesn_4": 40}
    for session_id, created_at in ages.items():
        await create(store, state(session_id, created_at))
    await create(
        store,
        state(
            "sesn_5",
            50,
            agent_id="agent_2",
            agent_version=7,
            archived_at=60,
            activity=Activity(Status.TERMINATED),
        ),
    )

    async def read(**fields):
        query = SessionQuery(**{"workspace_id": WORKSPACE, "limit": 10} | fields)
        return [one.id[-1] for one, _ in await store.read(lambda tx: tx.sessions(query))]

    assert await read() == ["4", "3", "2", "1"]
    assert await read(descending=False) == ["1", "2", "3", "4"]
    assert await read(key=(20, "sesn_3")) == ["2", "1"]
    assert await read(key=(20, "sesn_2"), descending=False) == ["3", "4"]
    assert await read(limit=1) == ["4"]
    assert await read(created=TimeRange(20, 39)) == ["3", "2"]
    assert await read(include_archived=True, agent_id="agent_2") == ["5"]
    assert await read(include_archived=True, agent_id="agent_2", agent_version=6) == []
    assert await read(include_archived=True, statuses=(Status.TERMINATED,)) == ["5"]
    assert await read(statuses=(Status.RUNNING,)) == []


async def test_a_session_that_needs_a_brain_is_listed_as_running(store):
    await create(store, state("sesn_1", needs_brain=True))
    await create(store, state("sesn_2"))

    async def found(*statuses):
        query = SessionQuery(WORKSPACE, limit=10, statuses=statuses)
        return [one.id for one, _ in await store.read(lambda tx: tx.sessions(query))]

    assert await found(Status.RUNNING) == ["sesn_1"]
    assert await found(Status.IDLE) == ["sesn_2"]


async def test_only_sessions_without_a_live_lease_need_a_brain(store, clock):
    now = int(clock.now().timestamp() * MICROS)
    await create(store, state("sesn_1", needs_brain=True, updated_at=2))
    await create(store, state("sesn_2", needs_brain=True, lease_expires_at=now, generation=4))
    await create(store, state("sesn_3", needs_brain=True, lease_expires_at=now + 1))
    await create(store, state("sesn_4"))
    needs = await store.read(lambda tx: tx.needs(10))
    found = [(need.ref.session_id, need.generation, need.expired) for need in needs]
    assert found == [("sesn_2", 4, True), ("sesn_1", 0, False)]
    assert len(await store.read(lambda tx: tx.needs(1))) == 1


async def test_a_removed_session_is_gone_with_all_that_belongs_to_it(store):
    await fill(store)
    await create(store, state("sesn_2"))

    def use(tx):
        tx.enqueue("sesn_1", [waiting(1, message("hi", "m1"))])
        tx.open_calls("sesn_1", [Call("c1", CallKind.ASK)])

    await store.write(use)
    await store.write(lambda tx: tx.remove("sesn_1"))
    assert await store.read(lambda tx: tx.state(REF)) is None
    await create(store)  # the same name again begins with nothing
    assert await store.read(lambda tx: tx.find("sesn_1", ["e1", "m1"])) == {}
    assert await store.read(lambda tx: tx.calls("sesn_1", ["c1"])) == {}
    assert len(await store.read(lambda tx: tx.threads("sesn_1"))) == 1
    assert await store.read(lambda tx: tx.state(SessionRef(WORKSPACE, "sesn_2"))) is not None


async def test_a_thread_comes_back_as_it_was_written(store):
    await create(store)
    [thread] = await store.read(lambda tx: tx.threads("sesn_1"))
    changed = dataclasses.replace(
        thread, updated_at=5, archived_at=6, activity=Activity(Status.RUNNING, 7, 8)
    )
    await store.write(lambda tx: tx.save_thread(changed))
    assert await store.read(lambda tx: tx.threads("sesn_1")) == [changed]


async def test_a_release_is_due_until_it_is_done(store, clock):
    await store.write(lambda tx: tx.request_release(REF, purge=True))
    [release] = await store.read(lambda tx: tx.due_releases(10))
    assert (release.ref, release.purge, release.attempts) == (REF, True, 0)
    await store.write(lambda tx: tx.postpone_release(release.id, 2 * MICROS))
    assert await store.read(lambda tx: tx.due_releases(10)) == []
    clock.move(2)
    [again] = await store.read(lambda tx: tx.due_releases(10))
    assert again.attempts == 1
    await store.write(lambda tx: tx.finish_release(again.id))
    assert await store.read(lambda tx: tx.due_releases(10)) == []


async def test_writes_at_once_lose_nothing(store):
    await create(store)

    def bump(tx):
        one = tx.state(REF)
        one.head_seq += 1
        tx.append("sesn_1", [stamped(one.head_seq)])
        tx.save(one)
        return one.head_seq

    async with asyncio.TaskGroup() as tasks:
        writes = [tasks.create_task(store.write(bump)) for _ in range(50)]
    assert sorted(write.result() for write in writes) == list(range(1, 51))
    assert seqs(await store.read(lambda tx: tx.log("sesn_1", EVERYTHING)))[0] == list(range(1, 51))
