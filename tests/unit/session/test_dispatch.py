"""Waking brains: one for each session, never two, never in a busy loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from chassis.errors import DroverError, Reason
from services.session.commits import Commits
from services.session.dispatch import Dispatcher
from services.session.domain import holding, lifecycle
from tests.doubles.session_events import message
from tests.doubles.session_stack import until
from tests.doubles.session_world import WORKSPACE, World, details


class Brains:
    """Brains without a network: each answers a wake with what the test says."""

    def __init__(self, *answers):
        self.asked = []
        self.brains = [_Brain(str(number), answer, self) for number, answer in enumerate(answers)]


class _Brain:
    def __init__(self, address, answer, brains):
        self.address = address
        self._answer = answer
        self._brains = brains

    async def wake(self, ref):
        self._brains.asked.append((self.address, ref.session_id))
        await self._answer(ref)


@asynccontextmanager
async def dispatching(world, brains, **options):
    dispatcher = Dispatcher(brains.brains, world.store, **options)
    async with Commits(world.store, [dispatcher]) as commits:
        work = asyncio.create_task(dispatcher.run(commits))
        await asyncio.sleep(0)
        yield dispatcher, commits
        work.cancel()
        await asyncio.wait({work})


async def fail(_ref):
    raise DroverError(Reason.UNAVAILABLE, "down")


async def hang(_ref):
    await asyncio.Event().wait()


async def test_with_every_brain_down_the_dispatcher_backs_off_and_goes_on(monkeypatch):
    world, pauses = World(message()), []
    real_sleep = asyncio.sleep

    async def sleep(seconds):
        pauses.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr("services.session.dispatch.asyncio.sleep", sleep)
    brains = Brains(fail, fail)
    async with dispatching(world, brains, sweep_seconds=3600):
        await until(lambda: len(brains.asked) >= 40)
    waits = [pause for pause in pauses if pause not in {0, 0.005} and pause < 1000]
    assert len(waits) >= len(brains.asked) // 2 - 1
    assert max(waits) <= 1.0
    assert waits[6] > waits[0]


async def test_a_session_that_every_brain_fails_at_is_tried_less_and_less_often(monkeypatch):
    world, pauses = World(message()), []
    real_sleep = asyncio.sleep

    async def sleep(seconds):
        pauses.append(seconds)
        await real_sleep(0)

    async def open_and_fail(_ref):
        world.open()
        dispatchers[0].hear(world.news[-1])
        raise DroverError(Reason.INTERNAL, "what this log holds is a fault's cause")

    monkeypatch.setattr("services.session.dispatch.asyncio.sleep", sleep)
    dispatchers = []
    brains = Brains(open_and_fail, open_and_fail)
    async with dispatching(world, brains, sweep_seconds=3600) as (one, _):
        dispatchers.append(one)
        await until(lambda: len(brains.asked) >= 40)
    waits = [pause for pause in pauses if pause not in {0, 0.005} and pause < 1000]
    assert len(waits) >= len(brains.asked) // 2 - 1
    assert max(waits) > 4.0


async def test_a_brain_that_never_opens_its_lease_is_given_up():
    world = World(message())
    brains = Brains(hang, hang)
    async with dispatching(world, brains, open_seconds=0.01):
        await until(lambda: len(brains.asked) >= 2)
    assert {address for address, _ in brains.asked} == {"0", "1"}


async def test_an_expired_lease_is_revoked_and_its_session_passed_on():
    world = World(message())

    async def open_and_hang(_ref):
        if world.state.generation == 0:
            world.open()
            dispatchers[0].hear(world.news[-1])
        await hang(_ref)

    dispatchers = []
    brains = Brains(open_and_hang, open_and_hang)
    async with dispatching(world, brains, sweep_seconds=3600, open_seconds=3600) as (one, _):
        dispatchers.append(one)
        await until(lambda: world.state.generation == 1)
        await one.sweep()
        assert len(brains.asked) == 1  # the lease lives
        world.clock.move(11)
        await one.sweep()
        await until(lambda: len(brains.asked) == 2)
    assert world.state.generation == 2
    assert world.state.lease_expires_at is None


async def test_a_session_that_another_brain_holds_is_left_alone():
    world = World(message())

    async def held(_ref):
        raise DroverError(Reason.LEASE_HELD, "held")

    brains = Brains(held)
    async with dispatching(world, brains, sweep_seconds=3600) as (one, _):
        await until(lambda: len(brains.asked) == 1)
        world.open()
        await one.sweep()
        await one.sweep()
    assert len(brains.asked) == 1
    assert world.state.generation == 1


async def test_news_of_a_session_that_is_being_seen_to_wakes_no_second_brain():
    world = World()
    brains = Brains(hang, hang)
    async with dispatching(world, brains, sweep_seconds=3600) as (one, commits):
        for _ in range(5):
            world.accept(message())
            one.hear(world.news[-1])
        await until(lambda: brains.asked)
        for _ in range(3):
            await one.sweep()
        created = await commits.write(
            lambda tx: lifecycle.create(tx, WORKSPACE, details(), [message()], world.ids)
        )
        await until(lambda: len(brains.asked) == 2)
    assert [session for _, session in brains.asked] == [world.ref.session_id, created.state.id]


async def test_full_brains_are_not_asked_for_every_session_that_waits(monkeypatch):
    world = World()
    for _ in range(30):
        world.do(lambda tx: lifecycle.create(tx, WORKSPACE, details(), [message()], world.ids))

    async def full(_ref):
        raise DroverError(Reason.RESOURCE_EXHAUSTED, "full")

    brains = Brains(full, full)
    monkeypatch.setattr("services.session.dispatch._REST", 3600)
    async with dispatching(world, brains, sweep_seconds=3600) as (one, _):
        await one.sweep()
        await until(lambda: len(brains.asked) == 2)
        for _ in range(100):
            await asyncio.sleep(0)  # every visit has had its turn
    assert sorted(address for address, _ in brains.asked) == ["0", "1"]


async def test_a_lease_whose_stream_broke_is_passed_on_where_no_call_waits_for_its_brain():
    world, brains = World(message()), Brains(hang)
    world.open()
    state = world.state
    async with dispatching(world, brains, sweep_seconds=3600, rejoin_seconds=0) as (one, _):
        await one.sweep()
        assert not brains.asked  # the lease lives
        one.desert(world.ref, state.generation, state.lease_expires_at)
        await until(lambda: brains.asked)
    assert world.state.generation == 2
    assert world.state.lease_expires_at is None


async def test_streams_that_break_because_the_process_goes_cost_no_brain_its_lease():
    world, brains = World(message()), Brains(hang)
    world.open()
    state = world.state
    async with dispatching(world, brains, sweep_seconds=3600, rejoin_seconds=0) as (one, _):
        one.leave()
        one.desert(world.ref, state.generation, state.lease_expires_at)
        for _ in range(20):
            await asyncio.sleep(0)
    assert not brains.asked
    assert world.state == state


def test_a_lease_that_was_taken_up_again_after_its_stream_broke_stays():
    world = World(message())
    generation = world.open()
    broken = world.state.lease_expires_at
    world.clock.move(1)
    world.open(generation=generation)
    for last_seen, held in ((broken, True), (world.state.lease_expires_at, False)):
        world.do(
            lambda tx, seen=last_seen: holding.abandon(tx, world.ref, generation, last_seen=seen)
        )
        assert (world.state.generation == generation) is held


async def test_a_brain_that_cannot_be_woken_is_told_of_once(monkeypatch):
    told, real_sleep = [], asyncio.sleep
    monkeypatch.setattr("services.session.dispatch.asyncio.sleep", lambda _: real_sleep(0))
    monkeypatch.setattr("services.session.dispatch._log.info", lambda *_, **line: told.append(line))
    world, brains = World(message()), Brains(fail, fail)
    async with dispatching(world, brains, sweep_seconds=3600):
        await until(lambda: len(brains.asked) >= 20)
    assert sorted(line["brain"] for line in told) == ["0", "1"]
