"""Those who poll are woken by what is queued, here or at another replica; the lost are missed."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from drover.session.v1 import notice_pb2
from services.session.commits import Commits
from services.session.dispatch import Dispatcher
from services.session.domain.news import News
from services.session.domain.session import SessionRef
from services.session.domain.work import WorkState
from services.session.feed import Feed
from services.session.leases import Leases
from services.session.watch import Watch
from services.session.workers import Doorbell, LapsedWork, Pollers
from tests.doubles.session_events import message
from tests.doubles.session_world import World

REF = SessionRef("wrkspc_default", "sesn_1")


class Counts:
    def __init__(self):
        self.seen, self.lapsed = None, 0

    def work(self, waiting, oldest_seconds):
        self.seen = waiting, oldest_seconds

    def lapsed_work(self):
        self.lapsed += 1


def test_everyone_who_waits_in_the_environment_hears_of_it_and_nobody_else():
    bell = Doorbell()
    with (
        bell.listening("env_1") as one,
        bell.listening("env_1") as two,
        bell.listening("env_2") as other,
    ):
        bell.hear(News(REF, work="env_1"))
        assert one.is_set()
        assert two.is_set()
        bell.hear(News(REF))
        assert not other.is_set()
    assert bell._listening == {}


def test_a_hint_of_work_rings_here():
    rung, world = [], World()
    dispatcher = Dispatcher([], world.store)
    watch = Watch(world.store, Feed(), Leases(), dispatcher, ring=rung.append)
    watch.look([notice_pb2.SessionChange(session_id="sesn_1", work="env_1")])
    watch.look([notice_pb2.SessionChange(session_id="sesn_1", grown=True)])
    assert rung == ["env_1"]


async def test_that_a_worker_polls_is_written_down_now_and_then():
    world, written = World(), 0
    write = world.store.write

    async def counting(fn, **more):
        nonlocal written
        written += 1
        return await write(fn, **more)

    world.store.write = counting
    pollers = Pollers(world.store)
    for worker in ("a", "b", "a", "a"):
        await pollers.note("env_1", worker)
    assert written == 2
    assert await world.store.read(lambda tx: tx.pollers("env_1", 0)) == 2


@pytest.fixture
async def lost():
    """A world whose session's worker is lost, with what looks for such."""
    world, counts, bell = World(message(), self_hosted=True), Counts(), Doorbell()
    async with Commits(world.store, [], [bell]) as commits:
        yield world, counts, bell, LapsedWork(world.store, commits, counts)


async def test_lost_worker_is_missed_and_others_are_woken(lost):
    world, counts, bell, lapsed = lost
    [item] = world.store._tables.work.values()
    world.store._tables.work[item.id] = dataclasses.replace(
        item, state=WorkState.ACTIVE, lease_expires_at=1
    )
    with bell.listening("env_1") as rung:
        await lapsed.sweep()
        async with asyncio.timeout(30):
            await rung.wait()
    assert counts.lapsed == 1
    [item] = world.store._tables.work.values()
    assert item.state is WorkState.QUEUED


async def test_what_waits_is_shown_with_its_age(lost):
    world, counts, _, lapsed = lost
    world.clock.move(7)
    await lapsed.sweep()
    assert counts.seen == (1, 7.0)
    world.do(lambda tx: (tx.remove_work(world.ref.session_id), None))
    await lapsed.sweep()
    assert counts.seen == (0, 0.0)
    assert counts.lapsed == 0
