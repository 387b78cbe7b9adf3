"""What making sessions in steps keeps to, over every store."""

from __future__ import annotations

import dataclasses

import pytest

from chassis.errors import DroverError, Reason
from drover.api.v1.request_key_pb2 import RequestKey
from drover.event.v1 import event_pb2
from services.session.domain.copies import STEP_BYTES, STEP_EVENTS, Stretch
from services.session.domain.event import CallKind, InputClass, event_type
from services.session.domain.ports import Call, CallState, LogEntry, SessionQuery
from services.session.domain.session import (
    Activity,
    Origin,
    SessionRef,
    Status,
    Stop,
    ThreadState,
    Waiting,
)
from services.session.store.copies import SqlCopyStore
from tests.doubles.session_copies import MemoryCopyStore
from tests.doubles.session_events import (
    interrupt,
    message,
    said,
    thread_running,
    tool_result,
    tool_use,
)
from tests.doubles.session_rows import EVERYTHING, create, fill, seqs, stamped, state, waiting
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_world import WORKSPACE, details

COPY = SessionRef(WORKSPACE, "sesn_copy")
UNKNOWN = b"\xba\x3e\x03new"  # field 1,000


@pytest.fixture
def copies(store, clock):
    """Steps on the sessions of the store."""
    if isinstance(store, MemoryStore):
        return MemoryCopyStore(store)
    return SqlCopyStore(store._database, clock)


def thread(session_id="sesn_copy", thread_id="sthr_copy", **fields):
    return ThreadState(thread_id, session_id, created_at=1, updated_at=1, **fields)


async def begin(copies, one=None, threads=None, **detail_fields):
    one = one or state("sesn_copy")
    threads = threads or [thread()]
    await copies.step(lambda tx: tx.begin(one, details(**detail_fields), threads))
    return one


async def log_of(store, session_id="sesn_copy"):
    return (await store.read(lambda tx: tx.log(session_id, EVERYTHING)))[0]


async def refused(call):
    with pytest.raises(DroverError) as caught:
        await call
    return caught.value


async def test_nobody_sees_a_session_before_it_is_published(store, copies):
    one = await begin(copies)
    await copies.step(lambda tx: tx.append("sesn_copy", [stamped(1)]))
    query = SessionQuery(WORKSPACE, limit=10, include_archived=True)
    assert await store.read(lambda tx: tx.state(COPY)) is None
    assert await store.read(lambda tx: tx.sessions(query)) == []
    shown = dataclasses.replace(one, head_seq=1)
    await copies.step(lambda tx: tx.publish(shown))
    assert await store.read(lambda tx: tx.state(COPY)) == shown
    assert [one.id for one, _ in await store.read(lambda tx: tx.sessions(query))] == ["sesn_copy"]
    assert [event.id for event in await log_of(store)] == ["e1"]


async def test_a_published_session_is_all_that_it_was_said_to_be(store, copies):
    one = state(
        "sesn_copy",
        archived_at=2,
        activity=Activity(Status.TERMINATED, None, 4, 5),
        stop=Stop.REFUSAL,
        head_seq=1,
        head_at=7,
        inbox_tail=1,
        waiting=Waiting(messages=1),
        unanswered=2,
        generation=13,
        usage=b"\x08\x01",
        updated_at=16,
    )
    ended = Activity(Status.TERMINATED, None, 1, 2)
    threads = [thread(activity=ended), thread(thread_id="sthr_b", parent_thread_id="sthr_copy")]
    large = {"title": "Flock", "metadata": {"a": "b"}, "origin": Origin("sesn_0", 3)}
    await begin(copies, one, threads, **large)

    def rest(tx):
        tx.enqueue("sesn_copy", [waiting(1, message("hi", "m1"))])
        tx.open_calls("sesn_copy", [Call("c1", CallKind.ASK), Call("c2", CallKind.CUSTOM)])
        tx.save_calls("sesn_copy", [Call("c1", CallKind.ASK, CallState.CLOSED, "r1")])
        tx.publish(one)

    await copies.step(rest)
    assert await store.read(lambda tx: tx.state(COPY)) == one
    assert await store.read(lambda tx: tx.details("sesn_copy")) == details(**large)
    assert await store.read(lambda tx: tx.threads("sesn_copy")) == threads
    calls = await store.read(lambda tx: tx.calls("sesn_copy", ["c1", "c2"]))
    assert calls["c1"].result_id == "r1"
    assert calls["c2"].state is CallState.OPEN
    inbox = await store.read(lambda tx: tx.waiting("sesn_copy", tuple(InputClass), 9))
    assert [entry.event.id for entry in inbox] == ["m1"]


async def test_an_id_that_is_taken_is_a_conflict(store, copies):
    await create(store)
    taken = await refused(begin(copies, state(), [thread("sesn_1", "sthr_new")]))
    assert (taken.reason, taken.message) == (Reason.CONFLICT, "session sesn_1 exists already")
    await begin(copies)
    again = await refused(begin(copies, threads=[thread(thread_id="sthr_other")]))
    assert again.reason is Reason.CONFLICT
    assert "just being made" in again.message
    other = begin(copies, state("sesn_other"), [thread("sesn_other", "sthr_sesn_1")])
    assert "thread sthr_sesn_1 exists already" in (await refused(other)).message
    query = SessionQuery(WORKSPACE, limit=10)
    assert [one.id for one, _ in await store.read(lambda tx: tx.sessions(query))] == ["sesn_1"]


async def test_nothing_is_added_to_a_session_that_is_gone_or_seen(store, copies):
    assert (await refused(append(copies))).reason is Reason.UNAVAILABLE
    one = await begin(copies)
    await copies.step(lambda tx: tx.publish(one))
    assert (await refused(append(copies))).reason is Reason.UNAVAILABLE
    published_again = copies.step(lambda tx: tx.publish(one))
    assert (await refused(published_again)).reason is Reason.UNAVAILABLE
    assert await log_of(store) == []


def append(copies):
    return copies.step(lambda tx: tx.append("sesn_copy", [stamped(1)]))


async def test_a_step_knows_what_earlier_ones_added(copies):
    await begin(copies)

    def add(tx):
        tx.append("sesn_copy", [stamped(1)])
        tx.open_calls("sesn_copy", [Call("c1", CallKind.ASK)])

    await copies.step(add)
    assert await copies.step(lambda tx: tx.logged("sesn_copy", ["e1", "e2"])) == {"e1"}
    assert await copies.step(lambda tx: tx.logged("sesn_copy", [])) == set()
    assert await copies.step(lambda tx: tx.calls("sesn_copy", ["c1", "c2"])) == {
        "c1": Call("c1", CallKind.ASK)
    }


async def copied(store, copies, upto, **threads):
    """The log of a copy of `sesn_1`, made in as many steps as it takes; and their number."""
    await begin(copies)
    at, steps = 0, 0
    while at < upto:
        stretch = Stretch("sesn_1", "sesn_copy", at, upto, threads or {"sthr_sesn_1": "sthr_copy"})
        at, steps = await copies.step(lambda tx, s=stretch: tx.copy(s)), steps + 1
    return await log_of(store), steps


async def test_a_copied_log_has_the_ids_positions_and_stamps_of_its_source(store, copies):
    await fill(store, 9)
    log, steps = await copied(store, copies, 7)
    assert log == (await log_of(store, "sesn_1"))[:7]
    assert steps == 1


async def test_a_long_log_is_copied_in_steps(store, copies):
    await fill(store, 2 * STEP_EVENTS + 1)
    log, steps = await copied(store, copies, 2 * STEP_EVENTS + 1)
    assert [event.seq for event in log] == list(range(1, 2 * STEP_EVENTS + 2))
    assert steps == 3


async def test_a_log_of_large_events_is_copied_in_steps_of_one_at_least(store, copies):
    await create(store)
    texts = ["x" * STEP_BYTES, "y" * (STEP_BYTES // 2), "z" * (STEP_BYTES // 3)]
    entries = [stamped(n, said(text, f"e{n}")) for n, text in enumerate(texts, start=1)]
    await store.write(lambda tx: tx.append("sesn_1", entries))
    log, steps = await copied(store, copies, 3)
    assert [event.agent_message.content[0].text.text for event in log] == texts
    assert steps == 2


async def test_events_of_a_copy_name_its_own_threads(store, copies):
    await create(store)
    events = [
        thread_running("sthr_sesn_1"),
        interrupt("sthr_child"),
        said("I am sthr_sesn_1", "said"),
        said("of the child", "child"),
        thread_running("sthr_elsewhere"),
    ]
    events[3].thread_id = "sthr_child"
    for number, event in enumerate(events, start=1):
        event.id = event.id or f"e{number}"
        stamped(number, event)
    unknown = event_pb2.Event.FromString(events[0].SerializeToString() + UNKNOWN)
    entries = [LogEntry(event, event_type(event)) for event in (unknown, *events[1:])]
    await store.write(lambda tx: tx.append("sesn_1", entries))
    log, _ = await copied(store, copies, 5, sthr_sesn_1="sthr_copy", sthr_child="sthr_child_copy")
    assert [event.seq for event in log] == [1, 2, 3, 4, 5]
    assert log[0].session_thread_status_running.session_thread_id == "sthr_copy"
    assert UNKNOWN in log[0].SerializeToString()
    assert log[1].user_interrupt.session_thread_id == "sthr_child_copy"
    assert log[2] == events[2]
    assert log[3].thread_id == "sthr_child_copy"
    assert log[4] == events[4]
    of_child = dataclasses.replace(EVERYTHING, threads=("sthr_child_copy",))
    assert seqs(await store.read(lambda tx: tx.log("sesn_copy", of_child))) == ([4], False)


async def test_a_copied_call_is_closed_if_its_result_was_copied_too(store, copies):
    await create(store)
    events = [
        tool_use("a"),
        tool_use("b"),
        tool_use("c"),
        tool_result("a", event_id="ra"),
        tool_result("b", event_id="rb"),
    ]
    entries = [
        LogEntry(stamped(n, event).event, event_type(event))
        for n, event in enumerate(events, start=1)
    ]

    def write(tx):
        tx.append("sesn_1", entries)
        tx.open_calls(
            "sesn_1",
            [
                Call("a", CallKind.ALLOW, CallState.CLOSED, "ra"),
                Call("b", CallKind.ASK, CallState.CLOSED, "rb"),
                Call("c", CallKind.CUSTOM),
            ],
        )

    await store.write(write)
    await copied(store, copies, 4)
    calls = await store.read(lambda tx: tx.calls("sesn_copy", ["a", "b", "c"]))
    assert calls == {
        "a": Call("a", CallKind.ALLOW, CallState.CLOSED, "ra"),
        "b": Call("b", CallKind.ASK),
        "c": Call("c", CallKind.CUSTOM),
    }
    unfinished = await copies.step(lambda tx: tx.unfinished_calls("sesn_copy"))
    assert unfinished == [(calls["b"], "agent.tool_use"), (calls["c"], "agent.tool_use")]


async def test_a_source_that_is_deleted_meanwhile_is_not_found(store, copies):
    await fill(store, 5)
    await begin(copies)
    await store.write(lambda tx: tx.remove("sesn_1"))
    stretch = Stretch("sesn_1", "sesn_copy", 0, 5, {"sthr_sesn_1": "sthr_copy"})
    assert (await refused(copies.step(lambda tx: tx.copy(stretch)))).reason is Reason.NOT_FOUND
    assert await log_of(store) == []


async def test_a_discarded_session_goes_piece_by_piece_and_one_that_is_seen_stays(store, copies):
    await fill(store, 3)
    await begin(copies)
    entries = [stamped(seq) for seq in range(1, 1002)]
    await copies.step(lambda tx: tx.append("sesn_copy", entries))
    assert not await copies.step(lambda tx: tx.discard("sesn_copy"))
    assert len(await log_of(store)) == 1
    assert await copies.step(lambda tx: tx.discard("sesn_copy"))
    assert await copies.step(lambda tx: tx.discard("sesn_copy"))
    await begin(copies)
    assert await copies.step(lambda tx: tx.discard("sesn_1"))
    assert len(await log_of(store, "sesn_1")) == 3


async def test_a_session_that_no_step_touches_is_found_abandoned(copies):
    await begin(copies)
    before = await copies.step(lambda tx: tx.now())
    assert await copies.step(lambda tx: tx.abandoned(before + 1)) == ["sesn_copy"]
    assert await copies.step(lambda tx: tx.abandoned(before - 60_000_000)) == []


async def test_nothing_of_a_step_that_fails_is_kept(store, copies):
    def fail(tx):
        tx.begin(state("sesn_copy"), details(), [thread()])
        msg = "no"
        raise LookupError(msg)

    with pytest.raises(LookupError):
        await copies.step(fail)
    await begin(copies)
    assert await log_of(store) == []


async def test_an_answer_is_kept_with_what_is_published(store, copies):
    key = RequestKey(id=b"k" * 32, fingerprint=b"f" * 32)
    assert await copies.step(lambda tx: tx.answer(key)) is None
    one = await begin(copies)

    def publish(tx):
        assert tx.answer(key) is None
        tx.publish(one)
        tx.keep_answer(key, b"forked", one.id)

    await copies.step(publish)
    assert await copies.step(lambda tx: tx.answer(key)) == b"forked"
    assert await store.read(lambda tx: tx.answer(key)) == b"forked"
    other = RequestKey(id=key.id, fingerprint=b"g" * 32)
    assert (await refused(copies.step(lambda tx: tx.answer(other)))).reason is Reason.CONFLICT
