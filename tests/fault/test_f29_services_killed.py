"""F29: services of Drover are killed while workers of a self-hosted environment serve sessions.

The workers live on, whatever answers they get meanwhile. No call is lost, none has two results,
and since the worker that ran a call still has its result, and its lease, none is run again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.soak import limit, share
from tests.e2e.stack import Stack
from tests.e2e.workers import Desk, desk
from tests.fault.jobs import Jobs

WHOLE: Final = share(1) >= 1
SESSIONS: Final = round(share(20)) if WHOLE else 6
WORKERS: Final = 6 if WHOLE else 3
ROUNDS: Final = 6 if WHOLE else 3
KILLS: Final = 25 if WHOLE else 5
SERVICES: Final = ("session", "gateway", "brain-1", "registry", "brain-2")
"""In this order again and again, so that a share of the kills has the most of them."""


@pytest.fixture
def bench(own_stack: Stack, tmp_path: Path) -> Iterator[Desk]:
    with (
        desk(own_stack, tmp_path) as opened,
        # Who looks on while the gateway is away has to have patience.
        own_stack.client(max_retries=12) as client,
    ):
        yield replace(opened, client=client)


class Strikes:
    """Kills one service after the other, now and then the next before the last is back."""

    def __init__(self, stack: Stack, kills: int, seed: int) -> None:
        self._stack = stack
        self._random = random.Random(seed)  # noqa: S311
        self._left = [SERVICES[number % len(SERVICES)] for number in range(kills)]
        self._next = time.monotonic() + 1
        self.killed = 0

    def strike(self) -> None:
        """Kills one, if it is time."""
        if not self._left or time.monotonic() < self._next:
            return
        self._stack.kill(self._left.pop(0))
        self.killed += 1
        self._next = time.monotonic() + self._random.uniform(0.2, 1.2)


@pytest.mark.timeout(limit(120))
def test_sessions_end_well_whichever_services_are_killed_meanwhile(bench: Desk) -> None:
    jobs = Jobs(bench, SESSIONS, ROUNDS)
    workers = [bench.worker() for _ in range(WORKERS)]
    started = time.monotonic()
    jobs.begin()
    strikes = Strikes(bench.stack, KILLS, seed=SESSIONS)

    def finished() -> bool:
        strikes.strike()
        return jobs.finished()

    bench.stack.wait_for(finished, "the end of all jobs", 10 * SESSIONS + 40)
    took = time.monotonic() - started
    again = jobs.check()
    bench.stack.wait_for(jobs.no_work_is_left, "the end of all work")
    print(  # noqa: T201
        f"{SESSIONS} sessions, {jobs.calls} calls, {WORKERS} workers, "
        f"{strikes.killed} services killed, {again} calls run again, {took:.1f} s"
    )
    assert strikes.killed >= KILLS // 2
    assert [worker.poll() for worker in workers] == [None] * WORKERS
    assert again == 0
