"""Writes that wait at the same time share a transaction, and nobody is the worse for it."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from chassis.errors import DroverError, Reason
from services.session.domain.event import CallKind, InputClass
from services.session.domain.ports import About, Call, CallState
from services.session.domain.session import SessionRef, Waiting
from services.session.store import group
from services.session.store.schema import SCHEMA
from services.session.store.store import SqlSessionStore
from tests.doubles.databases import opened
from tests.doubles.session_events import message
from tests.doubles.session_rows import (
    EVERYTHING,
    REF,
    bump,
    create,
    positions,
    seqs,
    stamped,
    state,
    waiting,
)
from tests.doubles.session_world import WORKSPACE


class Gate:
    """Stands before a database's writes: they wait, are counted, fail where `outcomes` say so."""

    def __init__(self, database):
        self._write, database.write = database.write, self._pass
        self.open = asyncio.Event()
        self.open.set()
        self.reached = asyncio.Event()
        self.writes = 0
        self.outcomes = []
        self.committed = lambda _count: None

    async def _pass(self, fn):
        self.reached.set()
        await self.open.wait()
        self.writes += 1
        if self.outcomes and (failure := self.outcomes.pop(0)) is not None:
            raise failure
        result = await self._write(fn)
        self.committed(len(fn.args[1]))
        return result


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request, tmp_path):
    cluster = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    async with opened(SCHEMA, tmp_path, cluster) as [database]:
        yield database


@pytest.fixture
def gate(database):
    return Gate(database)


@pytest.fixture
async def grouping(database, gate, clock):
    store = SqlSessionStore(database, clock)
    yield store
    gate.open.set()
    await store.close()


class Together:
    """Has writes run in one group, in the order in which they are begun."""

    def __init__(self, store, gate):
        self._store = store
        self._gate = gate
        self.tasks = []

    async def __aenter__(self):
        self._gate.open.clear()
        self._gate.reached.clear()
        # A first group waits at the gate; the next one collects behind it.
        self._ahead = asyncio.create_task(self._store.write(lambda tx: tx.now()))
        await self._gate.reached.wait()
        self.before = self._gate.writes
        return self

    def write(self, fn, about=None):
        about = About(REF) if about is None else about
        self.tasks.append(asyncio.create_task(self._store.write(fn, about=about)))

    async def __aexit__(self, *error):
        await asyncio.sleep(0)
        self._gate.open.set()
        await self._ahead
        self.results = await asyncio.gather(*self.tasks, return_exceptions=True)
        self.commits = self._gate.writes - self.before - 1


def raising(error):
    def fn(tx):
        bump()(tx)
        raise error

    return fn


async def test_writes_that_wait_share_a_commit(grouping, gate):
    await create(grouping)
    async with Together(grouping, gate) as together:
        for _ in range(100):
            together.write(bump())
    assert together.commits == 1
    assert together.results == list(range(1, 101))
    assert await positions(grouping) == list(range(1, 101))


async def test_nobody_is_acknowledged_before_the_commit(grouping, gate):
    await create(grouping)
    acknowledged = []
    async with Together(grouping, gate) as together:
        for _ in range(10):
            together.write(bump())
            together.tasks[-1].add_done_callback(lambda task: acknowledged.append(task.result()))
        gate.committed = lambda count: acknowledged.append("committed") if count == 10 else None
    assert acknowledged == ["committed", *range(1, 11)]


async def test_writes_whose_commit_is_in_doubt_are_all_told_so(grouping, gate):
    await create(grouping)
    lost = DroverError(Reason.UNAVAILABLE, "gone", retry_after=1.0)
    async with Together(grouping, gate) as together:
        for _ in range(10):
            together.write(bump())
        gate.outcomes = [None, lost]
    assert together.results == [lost] * 10
    assert await positions(grouping) == []


@pytest.mark.parametrize(
    "error",
    [DroverError(Reason.CONFLICT, "no"), LookupError("no"), StopIteration()],
    ids=["refusal", "bug", "oddity"],
)
async def test_a_write_that_fails_fails_alone(grouping, gate, error):
    await create(grouping)
    async with Together(grouping, gate) as together:
        for fn in (bump(), raising(error), bump(), raising(error), bump()):
            together.write(fn)
    assert [r for r in together.results if isinstance(r, int)] == [1, 2, 3]
    failures = [r for r in together.results if not isinstance(r, int)]
    assert len(failures) == 2
    assert await positions(grouping) == [1, 2, 3]


async def test_a_write_that_the_database_refuses_fails_alone(grouping, gate):
    await create(grouping)
    await grouping.write(bump())

    def twice(tx):
        tx.append("sesn_1", [stamped(1)])  # a position that is taken
        return "kept"

    async with Together(grouping, gate) as together:
        for fn in (bump(), twice, bump()):
            together.write(fn)
    first, refused, last = together.results
    assert (first, last) == (2, 3)
    assert "unique" in str(refused).lower()
    assert await positions(grouping) == [1, 2, 3]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_text_that_the_database_cannot_hold_is_refused_alone(grouping, gate):
    await create(grouping)
    async with Together(grouping, gate) as together:
        together.write(bump())
        together.write(lambda tx: tx.append("sesn_1", [stamped(5, message("x", "a\0b"))]))
        together.write(bump())
    assert together.results[::2] == [1, 2]
    assert together.results[1].reason is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize("announced", [True, False])
async def test_an_event_that_was_thought_to_be_new_and_is_not_is_found_before_it_fails(
    grouping, gate, announced
):
    await create(grouping)
    await grouping.write(bump())

    def once(seq, event_id):
        def fn(tx):
            if tx.logged("sesn_1", [event_id], surely=False):
                return "there"
            tx.append("sesn_1", [stamped(seq, message("x", event_id))])
            return "new"

        return fn

    about = About(REF, logged=["e1", "e2", "e3"]) if announced else About()
    async with Together(grouping, gate) as together:
        for fn in (once(2, "e2"), once(3, "e1"), once(3, "e2"), once(3, "e3")):
            together.write(fn, about)
    assert together.results == ["new", "there", "there", "new"]
    assert await positions(grouping) == [1, 2, 3]


async def test_a_write_that_fails_after_the_database_was_told_of_it_leaves_no_trace(grouping, gate):
    await create(grouping)

    def look_and_fail(tx):
        bump()(tx)
        assert seqs(tx.log("sesn_1", EVERYTHING))[0] == [1, 2]
        tx.remove("sesn_1")
        raise DroverError(Reason.CONFLICT, "no")

    def look(tx):
        seq = bump()(tx)
        return seq, seqs(tx.log("sesn_1", EVERYTHING))[0]

    async with Together(grouping, gate) as together:
        for fn in (bump(), look_and_fail, look, bump()):
            together.write(fn)
    assert together.results[0] == 1
    assert together.results[2:] == [(2, [1, 2]), 3]
    assert await positions(grouping) == [1, 2, 3]


async def test_writes_of_a_group_see_what_those_before_them_have_written(grouping, gate):
    await create(grouping, state(waiting=Waiting(messages=1), inbox_tail=1))
    await grouping.write(lambda tx: tx.enqueue("sesn_1", [waiting(1, message("hi", "m1"))]))

    def queue(tx):
        tx.enqueue("sesn_1", [waiting(2, message("hi", "m2"))])
        tx.open_calls("sesn_1", [Call("c1", CallKind.ASK)])

    def take(tx):
        [entry] = tx.waiting("sesn_1", (InputClass.MESSAGE,), 1)
        tx.take("sesn_1", [(entry.position, 1)])
        tx.append("sesn_1", [stamped(1, entry.event)])
        tx.save_calls("sesn_1", [Call("c1", CallKind.ASK, CallState.CLOSED, "r1")])

    def look(tx):
        waits = [entry.event.id for entry in tx.waiting("sesn_1", tuple(InputClass), 9)]
        found = {key: one.seq for key, one in tx.find("sesn_1", ["m1", "m2"]).items()}
        calls = tx.calls("sesn_1", ["c1"])["c1"].state
        return tx.logged("sesn_1", ["m1", "m2"]), found, waits, calls

    expected = {"m1"}, {"m1": 1, "m2": 0}, ["m2"], CallState.CLOSED
    hints = About(REF, found=["m1", "m2"], calls=["c1"], waiting=True)
    async with Together(grouping, gate) as together:
        for fn in (queue, take, look):
            together.write(fn, hints)
    assert together.results[2] == expected
    assert await grouping.read(look) == expected


async def test_a_session_that_a_group_made_can_be_used_and_removed_in_it(grouping, gate):
    one = state()

    def make(tx):
        tx.create(one, details_of(tx), thread_of(one))
        return bump()(tx)

    donor = await create(grouping, state("sesn_donor"))
    [thread] = await grouping.read(lambda tx: tx.threads(donor.id))

    def details_of(tx):
        return tx.details(donor.id)

    def thread_of(of):
        return dataclasses.replace(thread, id=of.primary_thread_id, session_id=of.id)

    async with Together(grouping, gate) as together:
        together.write(make, About())
        together.write(bump(), About())
        together.write(lambda tx: tx.remove("sesn_1"), About())
        together.write(lambda tx: tx.state(REF), About())
        together.write(make, About())
    assert together.results == [1, 2, None, None, 1]
    assert await positions(grouping) == [1]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_the_time_is_the_databases(grouping, clock):
    clock.move(365 * 86_400)
    await create(grouping)

    def both(tx):
        tx.state(REF)
        return tx.now()

    for ask in (both, lambda tx: tx.now()):
        written = await grouping.write(ask, about=About(REF))
        read = await grouping.read(ask)
        assert 0 <= read - written < 60_000_000
        assert abs(written - clock.now().timestamp() * 1e6) > 86_400e6


async def test_a_caller_that_went_away_has_nothing_written(grouping, gate):
    await create(grouping)
    async with Together(grouping, gate) as together:
        together.write(bump())
        together.write(bump())
        await asyncio.sleep(0)
        together.tasks[0].cancel()
    assert together.results[1] == 1
    assert await positions(grouping) == [1]


async def test_too_many_that_wait_are_refused_at_once(grouping, gate, monkeypatch):
    monkeypatch.setattr(group, "_MAX_WAITING", 5)
    await create(grouping)
    async with Together(grouping, gate) as together:
        for _ in range(6):
            together.write(bump())
    refused = [result for result in together.results if isinstance(result, DroverError)]
    assert [error.reason for error in refused] == [Reason.RESOURCE_EXHAUSTED] * 2
    assert all(error.retry_after for error in refused)
    assert await positions(grouping) == [1, 2, 3, 4]
    assert await grouping.write(bump()) == 5


async def test_writes_of_several_sessions_are_one_transaction(grouping, gate):
    refs = [SessionRef(WORKSPACE, f"sesn_{number}") for number in range(20)]
    for ref in refs:
        await create(grouping, state(ref.session_id))
    async with Together(grouping, gate) as together:
        for ref in refs:
            together.write(bump(ref), About(ref))
    assert together.commits == 1
    assert together.results == [1] * 20
