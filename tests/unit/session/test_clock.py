"""The time of an SQLite database, whatever the machine's clock is set to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from services.session.store.clock import SteadyClock, steady
from services.session.store.schema import SCHEMA
from services.session.store.store import SqlSessionStore
from tests.doubles.databases import migrated
from tests.doubles.session_rows import create, state
from tests.doubles.session_world import ManualClock

HOUR = timedelta(hours=1)
LONG_AGO = datetime.fromtimestamp(0, UTC)


class Machine(ManualClock):
    """A machine whose clock can be set apart from what passes."""

    def __init__(self):
        super().__init__()
        self.passed = 0.0

    def live(self, seconds):
        self.passed += seconds
        self.move(seconds)


@pytest.fixture
def machine():
    return Machine()


def clock_of(machine, floor=LONG_AGO):
    return SteadyClock(machine, floor, passed=lambda: machine.passed)


def test_time_passes_as_it_does(machine):
    clock = clock_of(machine)
    start = clock.now()
    machine.live(7.5)
    assert clock.now() - start == timedelta(seconds=7.5)
    assert clock.now() == machine.now()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_moves_the_time_by_no_more_than_a_tenth_of_what_passes(machine, hours):
    clock = clock_of(machine)
    start = clock.now()
    machine.move(hours * 3600)
    assert clock.now() == start
    machine.live(10)
    assert abs((clock.now() - start).total_seconds() - 10) <= 1
    assert clock.now() > start


@pytest.mark.parametrize("hours", [1, -1])
def test_the_time_is_the_machines_again_in_the_end(machine, hours):
    clock, times = clock_of(machine), []
    machine.move(hours * 3600)
    for _ in range(12):
        machine.live(3600)
        times.append(clock.now())
    assert times[-1] == machine.now()
    assert times == sorted(times)


def test_a_small_correction_is_followed_at_once(machine):
    clock = clock_of(machine)
    machine.live(10)
    clock.now()
    machine.live(10)
    machine.move(-0.5)
    assert clock.now() == machine.now()


async def test_the_time_is_never_before_what_is_written(tmp_path, machine):
    now = int(machine.now().timestamp() * 1_000_000)
    async with migrated(f"sqlite:///{tmp_path / 'session.db'}", SCHEMA) as database:
        assert (await steady(database, machine)).now() - machine.now() < timedelta(seconds=1)
        store = SqlSessionStore(database, machine)
        await create(store, state("sesn_1", head_at=now))
        machine.move(-3600)
        back = (await steady(database, machine)).now()
        assert abs(back - machine.now() - HOUR) < timedelta(seconds=1)
        await create(store, state("sesn_2", lease_expires_at=now + 70_000_000))
        later = (await steady(database, machine)).now()
        assert abs(later - back - timedelta(minutes=1)) < timedelta(seconds=1)
        await store.close()
