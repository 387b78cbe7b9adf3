"""Kills and restarts under load, judged by the checker: nothing lost, doubled, moved or unseen."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.doubles.postgres import Cluster, running_cluster
from tests.doubles.soak import limit, share
from tests.e2e.driving import new_session
from tests.e2e.replicas import Replicas
from tests.fault.fleet import running_fleet, serves
from tests.fault.histories.checker import check
from tests.fault.histories.history import Outcome
from tests.fault.histories.run import SESSIONS, WRITERS, Breaker, run

SEED = 20261130
SECONDS = 60.0
LEAST = 10.0
"""Seconds in which everything is broken once."""
PAUSE = (1.0, 3.0)
STARTED_WITHIN = 40.0
ENOUGH = 30.0 if share(1) >= 1 else 10.0
"""Operations acknowledged a second, outages included, below which a run shows too little."""


def killing(fleet: Replicas) -> Breaker:
    """kill -9 of the session service, which is started again at once; until it serves again."""

    async def kill() -> str:
        fleet.kill("session-1")
        fleet.start("session-1")
        again = partial(serves, fleet, "session-1")
        await asyncio.to_thread(fleet.wait_for, again, "another session service", STARTED_WITHIN)
        return "kill -9 of the session service"

    return kill


def restarting(cluster: Cluster, mode: str) -> Breaker:
    """A restart of PostgreSQL."""

    async def restart() -> str:
        await asyncio.to_thread(cluster.restart, mode)
        return f"{mode} restart of PostgreSQL"

    return restart


def sessions_of(fleet: Replicas) -> list[str]:
    with fleet.client() as client:
        return [new_session(client).id for _ in range(SESSIONS)]


@contextmanager
def broken(data: Path, database: str) -> Iterator[tuple[Replicas, list[Breaker]]]:
    """The services on a database, and what is to be broken of them."""
    parts = ("registry", "session-1", "gateway-1")
    if database == "sqlite":
        with running_fleet(data, None, *parts) as fleet:
            yield fleet, [killing(fleet)]
        return
    with running_cluster() as cluster, running_fleet(data, cluster.new_database(), *parts) as fleet:
        restarts = [restarting(cluster, mode) for mode in ("fast", "immediate")]
        yield fleet, [restarts[0], killing(fleet), restarts[1]]


@pytest.mark.timeout(limit(150))
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_histories_under_kills_and_restarts_break_no_promise(
    tmp_path: Path, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with broken(tmp_path, database) as (fleet, breakers):
        work = partial(run, fleet, sessions_of(fleet), breakers)
        result = asyncio.run(work(seconds=share(SECONDS, least=LEAST), pause=PAUSE, seed=SEED))
    with capsys.disabled():
        sys.stdout.write(f"\n{result.report(database)}\n")
    history = result.recorder.history
    assert [str(violation) for violation in check(history)] == []
    assert result.recorder.unfit == []
    succeeded = Counter(
        write.writer for write in history.writes if write.outcome is Outcome.ACKNOWLEDGED
    )
    assert len(succeeded) == WRITERS, "some writer never succeeded"
    assert succeeded.total() >= ENOUGH * result.seconds, "too few operations succeeded"
    assert len(result.broken) >= len(breakers), "too little was broken"
