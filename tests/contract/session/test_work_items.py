"""Work items in every store: what is kept of them, how they are found, and who is given them."""

from __future__ import annotations

import dataclasses

import pytest

from chassis.errors import DroverError, Reason
from services.session.domain import queue
from services.session.domain.session import MICROS
from services.session.domain.work import WorkItem, WorkState
from services.session.domain.work_ports import Queue, WorkStats
from tests.doubles.session_rows import REF, create, state
from tests.doubles.session_world import WORKSPACE

ENV = Queue(WORKSPACE, "env_1")
ELSEWHERE = Queue(WORKSPACE, "env_2")


def item(work_id="work_1", session_id="sesn_1", *, at=1, environment_id="env_1", **fields):
    return WorkItem(
        work_id, dataclasses.replace(REF, session_id=session_id), environment_id, at, at, **fields
    )


async def add(store, *items):
    """Adds items, and the sessions that they are of."""

    def write(tx):
        for one in items:
            tx.add_work(one)

    for session_id in sorted({one.session.session_id for one in items}):
        await create(store, state(session_id, self_hosted=True))
    await store.write(write)


async def test_item_is_kept_with_every_field(store):
    full = item(
        state=WorkState.STOPPING,
        handed_out=2,
        handed_at=3,
        acknowledged_at=4,
        started_at=5,
        heartbeat_at=6,
        stop_requested_at=7,
        stopped_at=8,
        lease_expires_at=9,
        ttl_seconds=10,
        token=b"digest",
        worker_id="wörker",
        metadata={"k": "v"},
        setbacks=11,
        seen_seq=12,
        free_at=13,
    )
    await add(store, full)
    assert await store.read(lambda tx: tx.work_item("work_1")) == full
    changed = dataclasses.replace(item(), queued_at=20, state=WorkState.STOPPED)
    await store.write(lambda tx: tx.save_work(changed))
    assert await store.read(lambda tx: tx.work_item("work_1")) == changed
    assert await store.read(lambda tx: tx.work_item("work_2")) is None


async def test_a_transaction_sees_its_own_items(store):
    await create(store, state(self_hosted=True))

    def write(tx):
        tx.add_work(item())
        assert tx.live_work("sesn_1") == item()
        one = tx.work_item("work_1")
        one.stop(5)
        tx.save_work(one)
        assert tx.live_work("sesn_1") is None
        tx.add_work(item("work_2"))
        assert tx.live_work("sesn_1").id == "work_2"
        assert [one.id for one in tx.listed_work(ENV, 10, None)] == ["work_2", "work_1"]

    await store.write(write)


async def test_item_is_found_by_the_token_of_its_last_poll_alone(store):
    await add(store, item(token=b"first"))
    await store.write(lambda tx: tx.save_work(item(token=b"second")))
    assert await store.read(lambda tx: tx.work_of_token(b"first")) is None
    found = await store.read(lambda tx: tx.work_of_token(b"second"))
    assert found.id == "work_1"


async def test_what_waits_comes_in_the_order_in_which_it_was_queued(store):
    await add(
        store,
        item("work_1", "sesn_1", at=3),
        item("work_2", "sesn_2", at=1),
        item("work_3", "sesn_3", at=2, handed_at=50),
        item("work_4", "sesn_4", at=0, state=WorkState.ACTIVE),
        item("work_5", "sesn_5", at=0, environment_id="env_2"),
        item("work_6", "sesn_6", at=0, free_at=1 << 60),
    )

    async def waiting(queue, before, limit=10):
        return [
            one.id for one in await store.read(lambda tx: tx.waiting_work(queue, before, limit))
        ]

    assert await waiting(ENV, 49) == ["work_2", "work_1"]
    assert await waiting(ENV, 50) == ["work_2", "work_3", "work_1"]
    assert await waiting(ENV, 50, limit=1) == ["work_2"]
    assert await waiting(ELSEWHERE, 50) == ["work_5"]
    assert await waiting(Queue("another", "env_1"), 50) == []


async def test_items_are_listed_from_the_newest_page_by_page(store):
    await add(store, *(item(f"work_{n}", f"sesn_{n}", at=n // 2) for n in range(5)))

    async def page(limit, key=None):
        return await store.read(lambda tx: tx.listed_work(ENV, limit, key))

    assert [one.id for one in await page(3)] == ["work_4", "work_3", "work_2"]
    last = (await page(3))[-1]
    rest = await page(3, (last.created_at, last.id))
    assert [one.id for one in rest] == ["work_1", "work_0"]


async def test_stats_tell_what_waits_what_was_handed_out_and_since_when(store):
    assert await store.read(lambda tx: tx.work_stats(ENV)) == WorkStats()
    await add(
        store,
        item("work_1", "sesn_1", at=30),
        item("work_2", "sesn_2", at=20, handed_at=50),
        item("work_3", "sesn_3", at=10, state=WorkState.STARTING, handed_at=50),
        item("work_4", "sesn_4", at=5, environment_id="env_2"),
    )
    assert await store.read(lambda tx: tx.work_stats(ENV)) == WorkStats(1, 1, 20)
    assert await store.read(lambda tx: tx.work_stats()) == WorkStats(2, 1, 5)


async def test_items_lapse_with_their_lease(store):
    now = await store.read(lambda tx: tx.now())
    leased = {"state": WorkState.ACTIVE}
    await add(
        store,
        item("work_1", "sesn_1", lease_expires_at=now - 1, **leased),
        item("work_2", "sesn_2", lease_expires_at=now - 2, **leased),
        item("work_3", "sesn_3", lease_expires_at=now + 60 * MICROS, **leased),
        item("work_4", "sesn_4"),
    )
    assert [one.id for one in await store.read(lambda tx: tx.lapsed_work(9))] == [
        "work_2",
        "work_1",
    ]
    assert len(await store.read(lambda tx: tx.lapsed_work(1))) == 1


async def test_pollers_count_for_as_long_as_they_poll(store):
    for worker in ("a", "b", "a"):
        await store.write(lambda tx, worker=worker: tx.note_poller("env_1", worker))
    await store.write(lambda tx: tx.note_poller("env_2", "a"))
    now = await store.read(lambda tx: tx.now())

    async def polling(since):
        return await store.read(lambda tx: tx.pollers("env_1", since))

    assert await polling(now - 60 * MICROS) == 2
    assert await polling(now) == 0
    await store.write(lambda tx: tx.forget_pollers(now - 60 * MICROS))
    assert await polling(now - 60 * MICROS) == 2
    await store.write(lambda tx: tx.forget_pollers(now + MICROS))
    assert await polling(now - 60 * MICROS) == 0


async def test_items_go_with_their_session(store):
    await add(store, item())
    await store.write(lambda tx: tx.remove("sesn_1"))
    assert await store.read(lambda tx: tx.work_item("work_1")) is None


# polls


async def poll(store, first, token="token", **more):  # noqa: S107  # of an item that is none
    return await store.write(lambda tx: queue.poll(tx, ENV, first, token, **more))


async def test_poll_gives_the_item_that_was_found(store):
    await add(store, item())
    polled = await poll(store, item(), "t", worker_id="w")
    assert (polled.id, polled.worker_id, polled.handed_out) == ("work_1", "w", 1)
    assert (await store.read(lambda tx: tx.work_of_token(queue.digest_of("t")))).id == "work_1"


async def test_poll_that_comes_late_gets_what_is_next_or_nothing(store):
    await add(store, item("work_1", "sesn_1", at=1), item("work_2", "sesn_2", at=2))
    first = item("work_1", "sesn_1", at=1)
    got = [await poll(store, first, f"t{number}") for number in range(3)]
    assert [one and one.id for one in got] == ["work_1", "work_2", None]


async def test_what_was_not_acknowledged_is_given_to_the_next(store):
    await add(store, item())
    await poll(store, item(), "first")
    again = await poll(store, item(), "second", reclaim_micros=0)
    assert (again.id, again.handed_out) == ("work_1", 2)
    assert await store.read(lambda tx: tx.work_of_token(queue.digest_of("first"))) is None


async def test_item_of_another_environment_is_not_there(store):
    await add(store, item())
    for elsewhere in (ELSEWHERE, Queue("another", "env_1")):
        with pytest.raises(DroverError) as refusal:
            await store.read(lambda tx, elsewhere=elsewhere: queue.get(tx, elsewhere, "work_1"))
        assert refusal.value.reason is Reason.NOT_FOUND
    assert (await store.read(lambda tx: queue.get(tx, ENV, "work_1"))).id == "work_1"


async def test_unknown_token_opens_nothing(store):
    with pytest.raises(DroverError) as refusal:
        await store.read(lambda tx: queue.authenticate(tx, queue.digest_of("guessed")))
    assert refusal.value.reason is Reason.UNAUTHENTICATED
