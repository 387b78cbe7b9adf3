"""One brain at a time, each under a higher generation."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from tests.doubles.session_events import message, running, said
from tests.doubles.session_world import World


def refused(call):
    with pytest.raises(DroverError) as caught:
        call()
    return caught.value.reason


def test_a_lease_that_lives_is_refused_to_others():
    world = World(message())
    assert world.open() == 1
    assert refused(world.open) is Reason.LEASE_HELD


def test_an_expired_lease_passes_on_under_the_next_generation():
    world = World(message())
    world.open()
    world.clock.move(10.1)
    assert world.open() == 2


def test_second_brain_with_old_generation_cannot_append():
    world = World(message())
    old = world.open()
    world.clock.move(11)
    new = world.open()
    assert refused(lambda: world.append(old, said("stale"))) is Reason.LEASE_LOST
    world.append(new, said("fresh"))
    assert len(world.log) == 1


def test_renewals_and_appends_keep_the_lease():
    world = World(message())
    generation = world.open()
    for _ in range(5):
        world.clock.move(6)
        world.appends(generation)
        world.clock.move(6)
        world.append(generation, said("on"))
    assert refused(world.open) is Reason.LEASE_HELD


def test_a_broken_stream_is_taken_up_under_its_generation():
    world = World(message())
    generation = world.open()
    world.append(generation, running())
    assert world.open(generation, after_seq=1) == generation
    assert refused(lambda: world.open(generation + 1)) is Reason.LEASE_LOST


def test_a_revoked_lease_is_lost_and_its_session_wakes_another():
    world = World(message())
    generation = world.open()
    news = world.abandon(generation)
    assert news.wake
    assert refused(lambda: world.append(generation, said("late"))) is Reason.LEASE_LOST
    assert refused(lambda: world.open(generation)) is Reason.LEASE_LOST
    assert world.open() == generation + 2


def test_abandoning_an_older_lease_leaves_the_newer_alone():
    world = World(message())
    old = world.open()
    world.clock.move(11)
    new = world.open()
    assert world.abandon(old) is None
    world.append(new, said("still here"))


def test_a_lease_cannot_be_opened_behind_the_logs_end():
    world = World(message())
    assert refused(lambda: world.open(after_seq=1)) is Reason.INVALID_ARGUMENT


def test_an_archived_session_gives_no_lease():
    world = World()
    world.archive()
    assert refused(world.open) is Reason.ARCHIVED


def test_archiving_fences_off_a_brain_that_came_for_nothing():
    world = World()
    generation = world.open()
    world.archive()
    assert world.news[-1].fenced
    assert refused(lambda: world.append(generation, said("late"))) is Reason.LEASE_LOST
