"""Several processes on one PostgreSQL: no gap, no fork, no update lost, and no endless wait."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import asyncpg
import pytest

from chassis.errors import DroverError, Reason
from services.session.domain.event import CallKind, InputClass
from services.session.domain.ports import UNKNOWN, About, Call, CallState
from services.session.domain.session import SessionRef, Waiting
from storage.failures import PATIENCE
from tests.doubles.session_events import message
from tests.doubles.session_rows import REF, bump, create, positions, stamped, state, waiting
from tests.doubles.session_world import WORKSPACE

HOUR = 3_600_000_000
OTHER = SessionRef(WORKSPACE, "sesn_2")


@asynccontextmanager
async def holding(url, session_id="sesn_1"):
    """Has another process keep a session locked."""
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(
        "SELECT 1 FROM drover_session.sessions WHERE id = $1 FOR UPDATE", session_id
    )
    yield
    await transaction.rollback()
    await connection.close()


@pytest.mark.parametrize("about", [About(REF), UNKNOWN], ids=["announced", "unannounced"])
async def test_replicas_that_append_to_one_session_leave_no_gap_and_lose_nothing(replicas, about):
    await create(replicas[0])

    async def write(store, count):
        return [await store.write(bump(), about=about) for _ in range(count)]

    async with asyncio.TaskGroup() as tasks:
        done = [tasks.create_task(write(store, 25)) for store in replicas for _ in range(4)]
    written = [seq for task in done for seq in task.result()]
    assert sorted(written) == list(range(1, 201))
    assert await positions(replicas[0]) == list(range(1, 201))
    for task in done:
        assert task.result() == sorted(task.result())  # each writer's are in its order


async def test_replicas_with_the_same_sessions_in_other_orders_do_not_stop_one_another(replicas):
    refs = [SessionRef(WORKSPACE, f"sesn_{number}") for number in range(8)]
    for ref in refs:
        await create(replicas[0], state(ref.session_id))

    async def write(store, order):
        for ref in order:
            await store.write(bump(ref), about=About(ref))

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for round_ in range(8):
            for store, order in zip(replicas, (refs, refs[::-1]), strict=True):
                tasks.create_task(write(store, order[round_:] + order[:round_]))
    for ref in refs:
        assert await positions(replicas[1], ref) == list(range(1, 17))


async def test_what_was_announced_is_looked_at_under_the_lock(replicas, postgres_url):
    """Another replica changes everything between the announcement and the lock."""
    one, other = replicas
    await create(one, state(inbox_tail=1, waiting=Waiting(messages=1)))
    await one.write(lambda tx: tx.enqueue("sesn_1", [waiting(1, message("hi", "m1"))]))
    await one.write(lambda tx: tx.open_calls("sesn_1", [Call("c1", CallKind.ASK)]))
    about = About(REF, logged=["e1"], found=["m1", "m2"], calls=["c1"], waiting=True)

    def look(tx):
        return (
            tx.state(REF).head_seq,
            tx.logged("sesn_1", ["e1"]),
            sorted(tx.find("sesn_1", ["m1", "m2"])),
            tx.calls("sesn_1", ["c1"])["c1"].state,
            [entry.position for entry in tx.waiting("sesn_1", tuple(InputClass), 9)],
        )

    def change(tx):
        before = tx.state(REF)
        tx.append("sesn_1", [stamped(1), stamped(2, message("hi", "m1"))])
        tx.take("sesn_1", [(1, 2)])
        tx.enqueue("sesn_1", [waiting(2, message("hi", "m2"))])
        tx.save_calls("sesn_1", [Call("c1", CallKind.ASK, CallState.CLOSED, "e1")])
        tx.save(dataclasses.replace(before, head_seq=2, inbox_tail=2))

    async with holding(postgres_url):
        changing = asyncio.create_task(other.write(change, about=About(REF)))
        await until_waited_for(postgres_url)
        looking = asyncio.create_task(one.write(look, about=about))
    await changing
    assert await looking == (2, {"e1"}, ["m1", "m2"], CallState.CLOSED, [2])


@pytest.mark.parametrize("about", [About(REF), UNKNOWN], ids=["announced", "unannounced"])
async def test_a_session_that_another_holds_keeps_no_other_waiting(replicas, postgres_url, about):
    store, _ = replicas
    await create(store)
    await create(store, state("sesn_2"))
    async with holding(postgres_url):
        held = [asyncio.create_task(store.write(bump(), about=about)) for _ in range(3)]
        await until_waited_for(postgres_url)
        assert [await store.write(bump(OTHER), about=About(OTHER)) for _ in range(5)] == [
            1, 2, 3, 4, 5,
        ]  # fmt: skip
        assert not any(write.done() for write in held)
        held.append(asyncio.create_task(store.write(bump(), about=About(REF))))
    # In the order in which they came, the late one too.
    assert [await write for write in held] == [1, 2, 3, 4]


async def test_a_session_that_another_never_lets_go_is_unavailable_in_seconds(
    replicas, postgres_url, monkeypatch
):
    store, _ = replicas
    await create(store)
    monkeypatch.setattr("storage.postgres.PATIENCE", PATIENCE)
    async with holding(postgres_url):
        async with asyncio.timeout(30):
            with pytest.raises(DroverError) as refused:
                await store.write(bump(), about=About(REF))
        assert refused.value.reason is Reason.UNAVAILABLE
        assert refused.value.retry_after
    assert await store.write(bump(), about=About(REF)) == 1


async def test_a_session_that_is_not_there_is_not_waited_for(replicas):
    store, _ = replicas
    for about in (About(REF), UNKNOWN):
        assert await store.write(lambda tx: tx.state(REF), about=about) is None


async def test_a_release_is_one_replicas_at_a_time(replicas):
    for _ in range(40):
        await replicas[0].write(lambda tx: tx.request_release(REF, 1, purge=True))
    leased = await asyncio.gather(
        *(store.write(lambda tx: tx.lease_releases(7, HOUR)) for store in replicas * 3)
    )
    ids = [release.id for batch in leased for release in batch]
    assert len(ids) == len(set(ids)) == 40


async def until_waited_for(url):
    """Returns once somebody waits for a lock."""
    connection = await asyncpg.connect(url)
    async with asyncio.timeout(30):
        waiting_for = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while not await connection.fetchval(waiting_for):  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.01)
    await connection.close()
