"""What every store of sessions keeps to: over SQLite, over PostgreSQL and in memory alike."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from drover.event.v1 import event_pb2, usage_pb2
from services.session.domain.event import CallKind, InputClass
from services.session.domain.ports import (
    UNKNOWN,
    About,
    Call,
    CallState,
    InboxQuery,
    LogEntry,
    LogQuery,
    Peek,
    SessionQuery,
    TimeRange,
)
from services.session.domain.session import (
    MICROS,
    Activity,
    SessionRef,
    Status,
    Stop,
    Waiting,
)
from tests.doubles.session_events import interrupt, message, said
from tests.doubles.session_rows import (
    EVERYTHING,
    REF,
    bump,
    create,
    fill,
    positions,
    seqs,
    stamped,
    state,
    waiting,
)
from tests.doubles.session_world import WORKSPACE, details, other_workspace

HOUR = 3600 * MICROS


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
    most = 10**18 - 1
    await create(store, title="Flock", metadata={"a": "é", "b": ""}, budget=most)
    large = await store.read(lambda tx: tx.details("sesn_1"))
    assert large == details(title="Flock", metadata={"a": "é", "b": ""}, budget=most)
    changed = dataclasses.replace(large, title=None, metadata={}, budget=None)
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
        tx.request_release(REF, 3, purge=True)
        msg = "no"
        raise LookupError(msg)

    with pytest.raises(LookupError):
        await store.write(fail)
    assert await store.read(lambda tx: tx.state(REF)) == before
    assert await store.read(lambda tx: tx.find("sesn_1", ["e1", "m1"])) == {}
    assert await store.read(lambda tx: tx.calls("sesn_1", ["c1"])) == {}
    assert await store.write(lambda tx: tx.lease_releases(10, 1)) == []


async def test_a_transaction_sees_its_own_writes(store):
    await create(store)

    def fn(tx):
        tx.append("sesn_1", [stamped(1)])
        tx.enqueue("sesn_1", [waiting(1, message("hi", "m1"))])
        return tx.logged("sesn_1", ["e1"]), tx.waiting("sesn_1", tuple(InputClass), 9)

    logged, inbox = await store.write(fn)
    assert logged == {"e1"}
    assert [entry.position for entry in inbox] == [1]


async def test_time_stands_still_in_a_transaction(store):
    await create(store)

    def times(tx):
        first = tx.now()
        tx.state(REF)
        return first, tx.now()

    for run in (store.write, store.read):
        first, second = await run(times)
        assert first == second


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


async def test_only_sessions_without_a_live_lease_need_a_brain(store):
    now = await store.read(lambda tx: tx.now())
    await create(store, state("sesn_1", needs_brain=True, updated_at=2))
    await create(store, state("sesn_2", needs_brain=True, lease_expires_at=now, generation=4))
    await create(store, state("sesn_3", needs_brain=True, lease_expires_at=now + HOUR))
    await create(store, state("sesn_4"))
    needs = await store.read(lambda tx: tx.needs(10))
    found = [(need.ref.session_id, need.generation, need.expired) for need in needs]
    assert found == [("sesn_2", 4, True), ("sesn_1", 0, False)]
    assert len(await store.read(lambda tx: tx.needs(1))) == 1


async def test_a_need_that_has_just_come_up_can_be_left_to_whoever_brought_it_about(store):
    now = await store.read(lambda tx: tx.now())
    ages = {"sesn_1": 2 * HOUR, "sesn_2": 0}
    for session_id, age in ages.items():
        await create(store, state(session_id, needs_brain=True, updated_at=now - age))
        expired = {"lease_expires_at": now - age, "updated_at": 1}
        await create(store, state(f"{session_id}x", needs_brain=True, **expired))
    needs = await store.read(lambda tx: tx.needs(10, settled_micros=HOUR))
    assert {need.ref.session_id for need in needs} == {"sesn_1", "sesn_1x"}
    assert len(await store.read(lambda tx: tx.needs(10))) == 4


async def test_a_peek_tells_how_far_sessions_are_and_leaves_out_those_that_are_no_more(store):
    await create(store, state(workspace_id="other", head_seq=3, inbox_tail=4, generation=2))
    await create(store, state("sesn_2", waiting=Waiting(1, 2, 3), lease_expires_at=1))
    await create(store, state("sesn_3", archived_at=1))
    await create(store, state("sesn_4", activity=Activity(Status.TERMINATED)))
    ids = ["sesn_4", "sesn_3", "sesn_2", "sesn_1", "sesn_0"]
    seen = await store.read(lambda tx: tx.peek(ids))
    assert seen.keys() == set(ids[:-1])
    assert seen["sesn_1"] == Peek(
        SessionRef("other", "sesn_1"), 3, 4, Waiting(), 2, held=False, ended=False
    )
    assert seen["sesn_2"].held
    assert seen["sesn_2"].waiting == Waiting(1, 2, 3)
    assert [seen[one].ended for one in ids[:-1]] == [True, True, False, False]
    assert await store.read(lambda tx: tx.peek([])) == {}


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


async def test_a_release_is_due_until_it_is_done(store):
    await store.write(lambda tx: tx.request_release(REF, 3, purge=True))

    async def due():
        return await store.write(lambda tx: tx.lease_releases(10, 0))

    [release] = await due()
    assert (release.ref, release.generation, release.purge) == (REF, 3, True)
    assert release.attempts == 0
    await store.write(lambda tx: tx.postpone_release(release.id, HOUR))
    assert await due() == []
    await store.write(lambda tx: tx.postpone_release(release.id, 0))
    [again] = await due()
    assert again.attempts == 2
    await store.write(lambda tx: tx.finish_release(again.id))
    assert await due() == []


async def test_a_leased_release_is_nobody_elses_until_its_lease_is_over(store):
    for _ in range(3):
        await store.write(lambda tx: tx.request_release(REF, 3, purge=True))
    first = await store.write(lambda tx: tx.lease_releases(2, HOUR))
    rest = await store.write(lambda tx: tx.lease_releases(10, 0))
    assert (len(first), len(rest)) == (2, 1)
    assert await store.write(lambda tx: tx.lease_releases(10, 0)) == rest


async def test_writes_at_once_lose_nothing(store):
    await create(store)
    async with asyncio.TaskGroup() as tasks:
        writes = [tasks.create_task(store.write(bump())) for _ in range(50)]
    assert sorted(write.result() for write in writes) == list(range(1, 51))
    assert await positions(store) == list(range(1, 51))


async def test_a_read_that_writes_is_refused(store):
    one = await create(store)
    with pytest.raises(TypeError, match="written"):
        await store.read(lambda tx: tx.save(dataclasses.replace(one, head_seq=1)))


READS = {
    "state": lambda tx: tx.state(REF).head_seq,
    "details": lambda tx: tx.details("sesn_1").title,
    "threads": lambda tx: [thread.updated_at for thread in tx.threads("sesn_1")],
    "sessions": lambda tx: [
        one.head_seq for one, _ in tx.sessions(SessionQuery(WORKSPACE, limit=9))
    ],
    "log": lambda tx: seqs(tx.log("sesn_1", EVERYTHING))[0],
    "logged": lambda tx: sorted(tx.logged("sesn_1", ["e1", "e2", "m1", "m2"])),
    "find": lambda tx: {
        key: found.seq for key, found in sorted(tx.find("sesn_1", ["e2", "m1", "m2"]).items())
    },
    "waiting": lambda tx: [one.position for one in tx.waiting("sesn_1", tuple(InputClass), 9)],
    "inbox": lambda tx: [
        (one.position, one.taken_seq)
        for one in tx.inbox("sesn_1", InboxQuery(1, 0, 9, 9, 1 << 20))[0]
    ],
    "calls": lambda tx: sorted(tx.calls("sesn_1", ["c1", "c2"]).items()),
    "needs": lambda tx: [need.ref.session_id for need in tx.needs(9)],
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("about", [False, True])
async def test_every_read_sees_what_its_own_transaction_has_written(store, read, about):
    """And afterwards the same is stored."""
    one = await create(store)
    [thread] = await store.read(lambda tx: tx.threads("sesn_1"))

    def before(tx):
        tx.append("sesn_1", [stamped(1)])
        tx.enqueue("sesn_1", [waiting(n, message("hi", f"m{n}")) for n in (1, 2)])
        tx.open_calls("sesn_1", [Call("c1", CallKind.ASK)])
        tx.save(dataclasses.replace(one, head_seq=1, inbox_tail=2, waiting=Waiting(messages=2)))

    await store.write(before)

    def write(tx):
        tx.save(dataclasses.replace(tx.state(REF), head_seq=2, needs_brain=True))
        tx.save_details("sesn_1", details(title="new"))
        tx.save_thread(dataclasses.replace(thread, updated_at=5))
        tx.append("sesn_1", [stamped(2, message("hi", "m1"))])
        tx.take("sesn_1", [(1, 2)])
        tx.enqueue("sesn_1", [waiting(3, message("hi", "m3"))])
        tx.save_calls("sesn_1", [Call("c1", CallKind.ASK, CallState.ANSWERED)])
        tx.open_calls("sesn_1", [Call("c2", CallKind.CUSTOM)])
        return READS[read](tx)

    hints = About(
        REF, logged=["e1", "e2", "m1"], found=["m1", "m2"], calls=["c1", "c2"], waiting=True
    )
    seen = await store.write(write, about=hints if about else UNKNOWN)
    assert seen == await store.read(READS[read])
    assert seen not in ([], {})


async def test_a_slice_is_there_as_it_is_stored_too(store):
    await fill(store, 5)
    query = LogQuery(1, 4, limit=2, max_bytes=1 << 20)
    events, more = await store.read(lambda tx: tx.log("sesn_1", query))
    stored = await store.read(lambda tx: tx.stored_log("sesn_1", query))
    assert [event_pb2.Event.FromString(body) for body in stored] == events
    assert (len(events), more) == (2, True)
