"""Files of sessions that are no more are deleted, however often it takes."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from services.session.domain.file_ports import FORESEEN_MICROS
from services.session.domain.session import MICROS, SessionRef
from services.session.files import FileReleases
from services.session.hands import HandReleases
from tests.doubles.session_world import World


class Files:
    def __init__(self):
        self.away = False
        self.deleted = []
        self.reopened = []
        self.meanwhile = None

    async def delete(self, ref, file_id):
        await self._delete(ref, file_id)

    async def delete_all(self, ref):
        await self._delete(ref, "")
        if self.meanwhile is not None:
            self.meanwhile()

    async def reopen(self, ref):
        self.reopened.append(ref.session_id)

    async def _delete(self, ref, file_id):
        if self.away:
            raise DroverError(Reason.UNAVAILABLE, "away")
        self.deleted.append((ref.session_id, file_id))


class Hands:
    def __init__(self):
        self.away = False

    async def release(self, _ref, _generation, *, purge):
        if self.away:
            raise DroverError(Reason.UNAVAILABLE, f"away, {purge=}")


def due(world):
    return world.store.run(lambda tx: tx.lease_file_releases(10, 0), keep=False)


async def test_files_go_behind_the_hand_that_may_leave_some_to_the_last():
    world, files, hands, told = World(), Files(), Hands(), []
    releases = HandReleases(world.store, hands, files_due=lambda: told.append(1))
    world.delete()
    hands.away = True
    await releases.release_due()
    await FileReleases(world.store, files).release_due()
    assert (files.deleted, told) == ([], [])
    hands.away = False
    world.clock.move(1)
    await releases.release_due()
    await FileReleases(world.store, files).release_due()
    assert (files.deleted, told) == ([(world.ref.session_id, "")], [1])


async def test_an_archived_session_keeps_its_files():
    world, files = World(), Files()
    world.archive()
    await HandReleases(world.store, Hands()).release_due()
    await FileReleases(world.store, files).release_due()
    assert files.deleted == []


async def test_a_registry_that_is_away_is_asked_again():
    world, files = World(), Files()
    ref = world.ref
    world.store.run(lambda tx: [tx.release_files(ref, "file_1"), tx.release_files(ref, "file_2")])
    files.away = True
    releases = FileReleases(world.store, files)
    for _ in range(20):
        assert not await releases.release_due()
        assert not await releases.release_due()  # whatever has it look before anything is due
        world.clock.move(1)
    files.away = False
    assert await releases.release_due()
    assert files.deleted == [(ref.session_id, "file_1"), (ref.session_id, "file_2")]
    world.clock.move(3600)
    assert due(world) == []


async def test_files_stay_of_a_session_that_is_there_again():
    world, files = World(), Files()
    world.store.run(lambda tx: tx.release_files(world.ref))
    await FileReleases(world.store, files).release_due()
    assert files.deleted == []
    world.clock.move(3600)
    assert due(world) == []


async def test_a_session_that_is_imported_while_its_files_go_takes_files_again():
    world, files, other = World(), Files(), World()
    ref, state = world.ref, other.state
    [thread] = other.store.run(lambda tx: tx.threads(state.id), keep=False)
    large = other.store.run(lambda tx: tx.details(state.id), keep=False)
    world.delete()
    await HandReleases(world.store, Hands()).release_due()
    files.meanwhile = lambda: world.store.run(lambda tx: tx.create(state, large, thread))
    await FileReleases(world.store, files).release_due()
    assert (files.deleted, files.reopened) == ([(ref.session_id, "")], [ref.session_id])


async def test_what_was_foreseen_and_never_withdrawn_is_deleted():
    world, files = World(), Files()
    ref = SessionRef(world.ref.workspace_id, "sesn_new")
    world.store.run(lambda tx: [tx.foresee_files(ref), tx.foresee_files(ref, "file_1")])
    world.store.run(lambda tx: tx.keep_files(ref, "file_1"))
    world.clock.move(FORESEEN_MICROS / MICROS - 1)
    await FileReleases(world.store, files).release_due()
    assert files.deleted == []
    world.clock.move(1)
    await FileReleases(world.store, files).release_due()
    assert files.deleted == [(ref.session_id, "")]


async def test_what_was_given_up_cannot_be_withdrawn_any_more():
    world = World()
    world.store.run(lambda tx: tx.foresee_files(world.ref))
    world.clock.move(FORESEEN_MICROS / MICROS)
    world.store.run(lambda tx: tx.lease_file_releases(10, MICROS))
    with pytest.raises(DroverError) as caught:
        world.store.run(lambda tx: tx.keep_files(world.ref))
    assert caught.value.reason is Reason.UNAVAILABLE
