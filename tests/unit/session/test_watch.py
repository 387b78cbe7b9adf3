"""Looking up what other replicas have committed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2, notice_pb2
from drover.session.v1 import session_service_pb2 as pb
from services.session import watch
from services.session.dispatch import Dispatcher
from services.session.domain import lifecycle
from services.session.domain.accept import accept
from services.session.domain.news import News
from services.session.feed import Feed
from services.session.leases import HeldLease, Leases
from services.session.watch import Watch
from tests.doubles.session_events import idle, interrupt, message, running, said
from tests.doubles.session_stack import until
from tests.doubles.session_world import WORKSPACE, World, details


class Here:
    """A replica that looks, over a store that another one, the world, writes to."""

    def __init__(self, world):
        self.world = world
        self.feed, self.leases = Feed(), Leases()
        self.dispatcher = Dispatcher([], world.store)
        self.watch = Watch(world.store, self.feed, self.leases, self.dispatcher, poll_seconds=3600)
        self.feed.join(self)
        self.fetched = []

    def fetch(self, session_id):
        self.fetched.append(session_id)
        self.watch.look_at(session_id)

    def want_previews(self, session_id):
        pass

    def follow(self):
        subscription = self.feed.subscribe(self.world.ref.session_id, frozenset())
        state = self.world.state
        self.feed.place(state.id, state.head_seq, state.inbox_tail)
        return subscription

    def hold(self, generation):
        held = HeldLease(lambda: None)
        state = self.world.state
        held.opened(generation, state.head_seq, state.inbox_tail, state.lease_expires_at)
        self.leases.add(state.id, held)
        return held

    async def look(self):
        self.watch.look_everywhere()
        while self.watch._due:
            await self.watch._look()


async def seen(subscription):
    """What was offered: ids, with the positions of those that are in the log."""
    joined = b"".join(frame.data for frame in await subscription.take())
    frames = pb.StreamEventsResponse.FromString(joined).frames
    return [(frame.event.id, frame.event.seq) for frame in frames]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def here(world):
    return Here(world)


async def test_what_was_taken_at_once_is_echoed_before_it_is_stamped(world, here):
    subscription = here.follow()
    world.accept(message(event_id="m1"))
    generation = world.open()
    world.append(generation, running(), take=lease_pb2.TAKE_INPUT_ALL)
    world.accept(message(event_id="m2"))
    await here.look()
    found = await seen(subscription)
    assert found[:3] == [("m1", 0), ("m2", 0), ("m1", 1)]
    assert found[3][1] == 2
    await here.look()
    assert not subscription._frames


async def test_what_is_seen_here_first_is_not_seen_again(world, here):
    subscription = here.follow()
    world.accept(message(event_id="m1"))
    here.feed.hear(world.news[-1])
    await here.look()
    assert await seen(subscription) == [("m1", 0)]


async def test_news_ahead_of_what_was_told_waits_for_what_is_missing(world, here):
    subscription = here.follow()
    world.accept(message(event_id="m1"))  # elsewhere
    world.accept(message(event_id="m2"))  # here
    here.feed.hear(world.news[-1])
    assert here.fetched == [world.ref.session_id]
    await here.look()
    assert await seen(subscription) == [("m1", 0), ("m2", 0)]
    generation = world.open()
    world.append(generation, said("a", "e1"))  # elsewhere
    world.append(generation, said("b", "e2"))  # here
    here.feed.hear(world.news[-1])
    await here.look()
    assert await seen(subscription) == [("e1", 1), ("e2", 2)]


async def test_a_long_gap_is_told_page_by_page_in_order(world, here, monkeypatch):
    monkeypatch.setattr(watch, "_PAGE_EVENTS", 3)
    subscription = here.follow()
    world.accept(*(message(event_id=f"m{number}") for number in range(10)))
    generation = world.open()
    world.append(generation, take=lease_pb2.TAKE_INPUT_ALL)
    await here.look()
    found = await seen(subscription)
    echoes = [event_id for event_id, seq in found if not seq]
    assert echoes == [f"m{number}" for number in range(len(echoes))]
    assert [(event_id, seq) for event_id, seq in found if seq] == [
        (f"m{number}", number + 1) for number in range(10)
    ]


async def test_one_look_reads_so_much_and_the_next_the_rest(world, here, monkeypatch):
    monkeypatch.setattr(watch, "_MOST_BYTES", 10)
    subscriptions = []
    for _ in range(3):
        made = world.do(lambda tx: lifecycle.create(tx, WORKSPACE, details(), [], world.ids))
        ref = made.state.ref
        subscriptions.append(here.feed.subscribe(ref.session_id, frozenset()))
        here.feed.place(ref.session_id, 0, 0)
        world.store.run(lambda tx, ref=ref: accept(tx, ref, [message("x" * 100)], world.ids))
    looks = 0
    here.watch.look_everywhere()
    while here.watch._due:
        await here.watch._look()
        looks += 1
    assert looks == 3
    for subscription in subscriptions:
        assert len(await seen(subscription)) == 1


async def test_the_brain_is_told_of_input_once(world, here):
    world.accept(message())
    held = here.hold(world.open())
    await here.look()
    assert held.take_input() is None
    world.accept(interrupt())
    await here.look()
    waiting = held.take_input()
    assert waiting.interrupt
    assert not waiting.log_grown
    await here.look()
    assert held.take_input() is None


async def test_what_comes_while_an_append_is_on_its_way_is_told_behind_it(world, here):
    generation = world.open()
    held = here.hold(generation)
    held.begin_append()
    world.append(generation, running())
    world.accept(message())
    await here.look()
    assert held.take_input() is None
    held.end_append(world.sent_seq, world.state.lease_expires_at)
    waiting = held.take_input()
    assert waiting.message
    assert not waiting.log_grown


async def test_input_that_was_overtaken_is_not_told(world, here):
    held = here.hold(world.open())
    world.accept(message())
    late = world.news[-1]
    world.accept(interrupt())
    await here.look()
    here.leases.hear(late)
    assert held.take_input().interrupt


async def test_a_lease_that_is_no_more_is_lost_and_one_that_was_just_taken_is_not(world, here):
    world.accept(message())
    ref = world.ref.session_id
    before = world.store.run(lambda tx: tx.peek([ref]), keep=False)[ref]
    held = here.hold(world.open())
    here.leases.see(before)
    await here.look()
    assert not held.lost
    world.abandon(1)
    await here.look()
    assert held.lost


async def test_an_ended_session_ends_its_streams_behind_its_last_event(world, here):
    subscription = here.follow()
    world.accept(message())
    generation = world.open()
    world.append(generation, running(), take=lease_pb2.TAKE_INPUT_ALL)
    world.append(generation, idle(), release=True)
    world.archive()
    await here.look()
    found = await seen(subscription)
    assert found[-1][1] == world.state.head_seq
    assert subscription.ended


async def test_a_session_that_is_gone_ends_its_streams_with_the_same_event_everywhere(world, here):
    there, subscription = Here(world), here.follow()
    other = there.follow()
    world.delete()
    here.feed.hear(world.news[-1])
    await there.look()
    await there.look()
    [here_seen], [there_seen] = await seen(subscription), await seen(other)
    assert here_seen == there_seen
    assert other.ended


def test_only_changes_that_matter_here_are_looked_at(world, here):
    def changed(**what):
        change = notice_pb2.SessionChange(session_id=world.ref.session_id, **what)
        here.watch.look([change])
        due, here.watch._due = bool(here.watch._due), {}
        return due

    everything = {"grown": True, "input": True, "lease": True}
    assert not changed(**everything)
    subscription = here.follow()
    assert changed(grown=True)
    assert not changed(input=True, lease=True)
    here.feed.unsubscribe(world.ref.session_id, subscription)
    here.hold(1)
    assert changed(input=True)
    assert not changed(grown=True, lease=True)


@asynccontextmanager
async def looking(here):
    task = asyncio.create_task(here.watch.run())
    yield
    task.cancel()
    await asyncio.wait({task})


async def test_looks_go_on_after_the_database_was_away(world, here, monkeypatch):
    reads, real = [], world.store.read

    async def read(fn):
        reads.append(fn)
        if len(reads) == 1:
            raise DroverError(Reason.UNAVAILABLE, "away")
        return await real(fn)

    monkeypatch.setattr(world.store, "read", read)
    monkeypatch.setattr(here.watch, "_poll_seconds", 0.01)
    subscription = here.follow()
    world.accept(message(event_id="m1"))
    async with looking(here):
        await until(lambda: subscription._frames)
    assert await seen(subscription) == [("m1", 0)]


async def test_a_place_that_is_ahead_of_what_was_told_has_the_rest_read(world, here):
    first = here.follow()
    world.accept(message(event_id="m1"))
    here.follow()
    assert here.fetched
    await here.look()
    assert await seen(first) == [("m1", 0)]


def test_news_of_nothing_changes_nothing(world, here):
    here.follow()
    here.feed.hear(News(world.ref))
    assert here.feed.position(world.ref.session_id) == (0, 0)
