"""F29: workers of a self-hosted environment are killed, and their sessions go on with others.

A call whose worker died may have run: it is run again, for nobody knows. Its result is recorded
once, and none that was given is lost.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.messages_api import ToolUse, text, tools
from tests.doubles.soak import limit, share
from tests.e2e.driving import send, texts
from tests.e2e.forked import Forked
from tests.e2e.stack import Stack, running_stack
from tests.e2e.workers import Desk, desk
from tests.fault.jobs import Jobs

LEASE_SECONDS: Final = 4
WHOLE: Final = share(1) >= 1
SESSIONS: Final = round(share(50)) if WHOLE else 8
WORKERS: Final = 6 if WHOLE else 3
ROUNDS: Final = 3 if WHOLE else 2
"""Responses with calls, of two calls each, that a session's turn has."""
KILLS: Final = SESSIONS if WHOLE else 4


@pytest.fixture(scope="module")
def short_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that soon misses a worker."""
    data = tmp_path_factory.mktemp("workers")
    with running_stack(data, DROVER_WORK_LEASE_SECONDS=str(LEASE_SECONDS)) as stack:
        yield stack


@pytest.fixture
def bench(short_stack: Stack, tmp_path: Path) -> Iterator[Desk]:
    short_stack.model.reset()
    with desk(short_stack, tmp_path) as opened:
        yield opened


class Spree:
    """Kills one worker after the other, and puts another in its place.

    Every other one in the midst of a call; the rest just so, whatever they are about.
    """

    def __init__(self, bench: Desk, jobs: Jobs, workers: int, kills: int, seed: int) -> None:
        self._bench, self._jobs = bench, jobs
        self._random = random.Random(seed)  # noqa: S311
        self._workers = {one.pid: one for one in (bench.worker() for _ in range(workers))}
        self._left, self._next = kills, time.monotonic() + 1
        self.killed = 0

    def strike(self) -> None:
        """Kills one, if it is time."""
        now = time.monotonic()
        if not self._left or now < self._next:
            return
        pid = self._at_a_call() if self._left % 2 else self._random.choice([*self._workers])
        if pid not in self._workers:
            return
        kill(self._workers.pop(pid))
        another = self._bench.worker()
        self._workers[another.pid] = another
        self._left -= 1
        self.killed += 1
        self._next = now + self._random.uniform(0.2, 1.2)

    def _at_a_call(self) -> int:
        """The worker that was the last to begin a call, stopped; 0 if it has done that one."""
        marks = list((self._bench.folder / "work").glob("ran-*"))
        newest = max(marks, key=lambda path: path.stat().st_mtime, default=None)
        if newest is None:
            return 0
        pid = int(newest.read_text().split()[-1])
        if pid in self._workers:
            os.kill(pid, signal.SIGSTOP)
            if self._jobs.is_at_a_call(newest.name.removeprefix("ran-")):
                return pid
            os.kill(pid, signal.SIGCONT)
        return 0


def kill(worker: Forked) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()


@pytest.mark.timeout(limit(120))
def test_sessions_end_well_whichever_workers_are_killed(bench: Desk) -> None:
    jobs = Jobs(bench, SESSIONS, ROUNDS)
    started = time.monotonic()
    jobs.begin()
    spree = Spree(bench, jobs, WORKERS, KILLS, seed=SESSIONS)

    def finished() -> bool:
        spree.strike()
        return jobs.finished()

    bench.stack.wait_for(finished, "the end of all jobs", 5 * SESSIONS + 60)
    took = time.monotonic() - started
    again = jobs.check()
    bench.stack.wait_for(jobs.no_work_is_left, "the end of all work")
    print(  # noqa: T201
        f"{SESSIONS} sessions, {jobs.calls} calls, {WORKERS} workers, "
        f"{spree.killed} killed, {again} calls run again, {took:.1f} s"
    )
    assert spree.killed >= KILLS // 2
    assert again


def test_a_claimed_item_goes_to_another_process_once_its_lease_is_over(
    stack: Stack, tmp_path: Path
) -> None:
    stall = "touch begun; for _ in $(seq 400); do [ -e go ] && break; sleep 0.1; done; echo went"
    stack.model.script(tools(ToolUse("bash", {"command": stall})), text("finished"))
    with desk(stack, tmp_path) as bench:
        session = bench.session()
        send(bench.client, session.id, "work")
        place = bench.folder / "work"
        stack.wait_for(lambda: states(bench) == ["queued"], "work")
        (item,) = bench.claimed()
        first = bench.handed(item)
        stack.wait_for((place / "begun").exists, "the command to begin")
        # Its first beat goes out beside the command.
        stack.wait_for(lambda: states(bench) == ["active"], "the worker's beat")
        kill(first)
        # What is left of the usual lease, nobody would wait for in a test.
        bench.beat(item, desired_ttl_seconds=1)
        stack.wait_for(lambda: states(bench) == ["queued"], "the end of its lease")
        (place / "go").touch()
        (again,) = bench.claimed()
        assert again.id == item.id
        assert again.secret != item.secret
        bench.handed(again)
        log = stack.until_idle(bench.client, session.id)
    assert [one.strip() for one in texts(log, "user.tool_result")] == ["went"]


def states(bench: Desk) -> list[str]:
    return [item["state"] for item in bench.work()]
