"""Hands of ended sessions are released, however often it takes."""

from __future__ import annotations

import asyncio

from chassis.errors import DroverError, Reason
from services.session.domain.session import SessionRef
from services.session.hands import HandReleases
from tests.doubles.session_world import World


class Hands:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.released = []
        self.generations = []

    async def release(self, ref, generation, *, purge):
        self.generations.append(generation)
        self.released.append((ref.session_id, purge))
        if self.answers and (reason := self.answers.pop(0)) is not None:
            raise DroverError(reason, "no")


def due(world):
    return world.store.run(lambda tx: tx.lease_releases(10, 0), keep=False)


async def test_a_deleted_sessions_workspace_goes_too():
    world, hands = World(), Hands()
    world.delete()
    await HandReleases(world.store, hands).release_due()
    assert hands.released == [(world.ref.session_id, True)]
    assert due(world) == []


async def test_hands_hear_of_which_lease_they_are_to_take_nothing_more():
    world, hands = World(), Hands()
    generation = world.open()
    world.archive()
    world.delete()
    await HandReleases(world.store, hands).release_due()
    assert all(told >= generation for told in hands.generations)
    assert hands.released == [(world.ref.session_id, False), (world.ref.session_id, True)]


async def test_a_failed_release_is_tried_again_later():
    world, hands = World(), Hands(Reason.INTERNAL, Reason.INTERNAL, None)
    world.delete()
    releases = HandReleases(world.store, hands)
    for seconds in (1, 2, 0):
        await releases.release_due()
        await releases.release_due()
        world.clock.move(seconds)
    assert len(hands.released) == 3
    world.clock.move(3600)
    assert due(world) == []


async def test_hands_that_were_away_for_long_are_asked_again_as_soon_as_after_a_moment():
    world, away = World(), 20
    hands = Hands(*[Reason.UNAVAILABLE] * away)
    world.delete()
    releases = HandReleases(world.store, hands)
    for _ in range(away):
        assert not await releases.release_due()
        world.clock.move(1)
    assert await releases.release_due()
    assert len(hands.released) == away + 1
    assert due(world) == []


async def test_hands_that_are_away_are_asked_once_whatever_is_due():
    world, hands = World(), Hands(Reason.UNAVAILABLE)
    world.delete()
    another = SessionRef(world.ref.workspace_id, "sesn_another")
    world.store.run(lambda tx: tx.request_release(another, 1, purge=True))
    releases = HandReleases(world.store, hands)
    assert not await releases.release_due()
    assert len(hands.released) == 1
    world.clock.move(1)
    assert await releases.release_due()
    assert len({session_id for session_id, _ in hands.released}) == 2
    assert due(world) == []


async def test_hands_that_are_away_are_not_thought_back_when_nothing_is_due_yet():
    world, hands = World(), Hands(Reason.UNAVAILABLE)
    world.delete()
    releases = HandReleases(world.store, hands)
    assert not await releases.release_due()
    assert not await releases.release_due()  # as when another session has ended meanwhile
    assert len(hands.released) == 1
    world.clock.move(1)
    assert await releases.release_due()


async def test_a_hand_that_nobody_knows_is_done_with():
    world, hands = World(), Hands(Reason.NOT_FOUND)
    world.archive()
    await HandReleases(world.store, hands).release_due()
    assert hands.released == [(world.ref.session_id, False)]
    assert due(world) == []


async def test_releasing_ends_when_told_though_the_database_goes_away_meanwhile():
    class Store:
        def __init__(self):
            self.asked, self.failed = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def write(self, _fn):
            self.asked.set()
            await self.failed

    store = Store()
    running = asyncio.create_task(HandReleases(store, Hands()).run())
    await store.asked.wait()
    running.cancel()
    asyncio.get_running_loop().call_soon(
        store.failed.set_exception, DroverError(Reason.UNAVAILABLE, "the database does not answer")
    )
    await asyncio.wait({running}, timeout=30)
    assert running.cancelled()
