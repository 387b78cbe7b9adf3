from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from cli.stack.order import Order
from cli.stack.service import MAX_DELAY, Service, Stage, backoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.cli.conftest import Changes, FakeClock, FakeLauncher

ORDER = Order(name="hands", module="services.hands.main", log="/dev/null", environment={})
DEADLINE = 30.0


@asynccontextmanager
async def running(
    launcher: FakeLauncher,
    changes: Changes,
    clock: FakeClock,
    listening: asyncio.Event | None = None,
    grace: float = 5.0,
) -> AsyncIterator[Service]:
    service = Service(
        ORDER,
        launcher=launcher,
        listens=(listening or asyncio.Event()).wait,
        observer=changes,
        clock=clock,
        grace=grace,
        sleep=clock.sleep,
    )
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        group.create_task(service.run())
        try:
            yield service
        finally:
            await service.stop()


async def until(changes: Changes, stage: Stage) -> None:
    while (await changes.queue.get()).stage is not stage:
        pass


def test_backoff_grows_from_nothing_and_never_passes_two_seconds() -> None:
    delays = [backoff(failures) for failures in range(40)]
    assert delays[0] == 0
    assert delays == sorted(delays)
    assert max(delays) == MAX_DELAY == 2.0


async def test_service_that_was_healthy_is_started_again_at_once(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock
) -> None:
    listening = asyncio.Event()
    listening.set()
    async with running(launcher, changes, clock, listening):
        first = await launcher.children.get()
        await until(changes, Stage.LISTENING)
        clock.time += 60
        first.end(-signal.SIGKILL)
        second = await launcher.children.get()
        assert second.pid != first.pid
        assert clock.slept == [0]


async def test_service_that_never_listens_is_started_ever_more_slowly(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock
) -> None:
    async with running(launcher, changes, clock):
        for _ in range(8):
            (await launcher.children.get()).end(1)
        await launcher.children.get()
    assert clock.slept[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    assert max(clock.slept) <= 2.0


async def test_back_off_is_forgotten_once_the_service_was_healthy(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock
) -> None:
    listening = asyncio.Event()
    async with running(launcher, changes, clock, listening):
        for _ in range(3):
            (await launcher.children.get()).end(1)
        child = await launcher.children.get()
        listening.set()
        await until(changes, Stage.LISTENING)
        clock.time += 60
        child.end(1)
        await launcher.children.get()
    assert clock.slept == [0.1, 0.2, 0.4, 0.0]


async def test_service_that_dies_right_after_listening_backs_off_all_the_same(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock
) -> None:
    listening = asyncio.Event()
    listening.set()
    async with running(launcher, changes, clock, listening):
        for _ in range(3):
            child = await launcher.children.get()
            await until(changes, Stage.LISTENING)
            child.end(1)
        await launcher.children.get()
    assert clock.slept == [0.1, 0.2, 0.4]


async def test_service_that_cannot_be_started_says_why_and_is_tried_again(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock
) -> None:
    launcher.refusals = ["ImportError: no module named x"]
    async with running(launcher, changes, clock):
        change = await changes.queue.get()
        while change.stage is not Stage.DIED:
            change = await changes.queue.get()
        assert change.detail == "ImportError: no module named x"
        assert change.failures == 1
        await launcher.children.get()


async def test_death_is_told_with_the_signal_that_caused_it(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock
) -> None:
    async with running(launcher, changes, clock):
        (await launcher.children.get()).end(-signal.SIGKILL)
        change = await changes.queue.get()
        while change.stage is not Stage.DIED:
            change = await changes.queue.get()
        assert change.detail == "killed by SIGKILL"


async def test_stopped_service_is_not_started_again(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock
) -> None:
    async with running(launcher, changes, clock) as service:
        child = await launcher.children.get()
        await service.stop()
        assert child.signals == [signal.SIGTERM]
    assert len(launcher.orders) == 1


async def test_service_that_ignores_the_request_to_stop_is_killed(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock
) -> None:
    launcher.heeds_term = False
    async with running(launcher, changes, clock, grace=0.01) as service:
        child = await launcher.children.get()
        await service.stop()
        assert child.signals == [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize("ends_by_itself", [True, False])
async def test_kill_ends_a_service_that_is_already_stopping(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock, ends_by_itself: bool
) -> None:
    launcher.heeds_term = ends_by_itself
    async with running(launcher, changes, clock, grace=1e6) as service:
        child = await launcher.children.get()
        stopping = asyncio.ensure_future(service.stop())
        await child.signalled.wait()
        service.kill()
        await stopping
        assert child.signals[0] == signal.SIGTERM


async def test_stop_during_the_pause_between_two_starts_ends_it(
    launcher: FakeLauncher, changes: Changes, clock: FakeClock
) -> None:
    paused = asyncio.Event()

    async def sleep_forever(_seconds: float) -> None:
        paused.set()
        await asyncio.Event().wait()

    clock.sleep = sleep_forever  # type: ignore[method-assign]
    async with running(launcher, changes, clock) as service:
        (await launcher.children.get()).end(1)
        await paused.wait()
        await service.stop()
    assert len(launcher.orders) == 1
