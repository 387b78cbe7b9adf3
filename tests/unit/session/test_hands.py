"""Hands of ended sessions are released, however often it takes."""

from __future__ import annotations

from chassis.errors import DroverError, Reason
from services.session.hands import HandReleases
from tests.doubles.session_world import World


class Hands:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.released = []

    async def release(self, ref, *, purge):
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


async def test_a_failed_release_is_tried_again_later():
    world, hands = World(), Hands(Reason.UNAVAILABLE, Reason.UNAVAILABLE, None)
    world.delete()
    releases = HandReleases(world.store, hands)
    for seconds in (1, 2, 0):
        await releases.release_due()
        await releases.release_due()
        world.clock.move(seconds)
    assert len(hands.released) == 3
    world.clock.move(3600)
    assert due(world) == []


async def test_a_hand_that_nobody_knows_is_done_with():
    world, hands = World(), Hands(Reason.NOT_FOUND)
    world.archive()
    await HandReleases(world.store, hands).release_due()
    assert hands.released == [(world.ref.session_id, False)]
    assert due(world) == []
