"""Work among replicas on one database: each item is one worker's, and lapses once."""

from __future__ import annotations

import asyncio

from services.session.domain import queue
from services.session.domain.ports import About
from services.session.domain.session import SessionRef
from services.session.domain.work import WorkItem, WorkState
from services.session.domain.work_ports import Queue
from tests.doubles.session_rows import create, state
from tests.doubles.session_world import WORKSPACE

ENV = Queue(WORKSPACE, "env_1")
ITEMS = 12


async def filled(store, **fields):
    """As many sessions as there are items."""
    for number in range(ITEMS):
        session_id = f"sesn_{number:02}"
        await create(store, state(session_id, self_hosted=True, unanswered=1))
        item = WorkItem(
            f"work_{number:02}", SessionRef(WORKSPACE, session_id), "env_1", 1, number, **fields
        )
        await store.write(lambda tx, item=item: tx.add_work(item))


async def take(store, worker):
    """Polls until nothing is left, and answers what it got."""
    got = []
    while waiting := await store.read(lambda tx: tx.waiting_work(ENV, tx.now() - 10**9, 1)):
        [first] = waiting
        token = f"{worker}-{len(got)}"
        item = await store.write(
            lambda tx, first=first, token=token: queue.poll(
                tx, ENV, first, token, worker_id=worker, reclaim_micros=10**9
            ),
            about=About(first.session),
        )
        if item is not None:
            got.append(item.id)
    return got


async def test_no_item_is_given_to_two_workers_that_poll_at_the_same_time(replicas):
    await filled(replicas[0])
    taken = await asyncio.gather(*(take(replicas[n % 2], f"worker {n}") for n in range(6)))
    every = [one for got in taken for one in got]
    assert len(every) == ITEMS
    assert sorted(every) == [f"work_{number:02}" for number in range(ITEMS)]


async def test_item_that_both_replicas_see_lapse_is_queued_again_once(replicas):
    await filled(replicas[0], state=WorkState.ACTIVE, lease_expires_at=5)

    async def sweep(store):
        taken = []
        for item in await store.read(lambda tx: tx.lapsed_work(ITEMS)):
            lapsed, _ = await store.write(
                lambda tx, item=item: queue.lapse(tx, item), about=About(item.session)
            )
            if lapsed is not None:
                taken.append(lapsed.id)
        return taken

    one, other = await asyncio.gather(*map(sweep, replicas))
    assert sorted(one + other) == [f"work_{number:02}" for number in range(ITEMS)]
    stats = await replicas[1].read(lambda tx: tx.work_stats(ENV))
    assert stats.depth == ITEMS
