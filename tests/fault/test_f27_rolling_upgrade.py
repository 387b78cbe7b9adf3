"""F27: the release before is replaced process by process, beside this one, on this one's tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.doubles.postgres import Cluster
from tests.doubles.soak import limit, share
from tests.e2e.forked_service import RELEASE
from tests.e2e.replicas import BRAINS, GATEWAYS, SESSIONS, Replicas, running_replicas
from tests.fault.releases import unpacked
from tests.fault.rolling import Rolling, slowly

AT_WORK = 50
OLD = (*SESSIONS, *BRAINS) if share(1) < 1 else ("registry", *SESSIONS, "hands", *BRAINS, *GATEWAYS)
LONGER = 10.0 if share(1) >= 1 else 30.0
"""Seconds that it may cost a turn, more where other tests take the processor as well."""


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: Cluster) -> Iterator[Replicas]:
    """The release before, on tables that this one has migrated."""
    tree = unpacked(tmp_path_factory.mktemp("release"))

    def older(planned: Replicas) -> None:
        for name in OLD:
            planned.processes[name].environment[RELEASE] = str(tree)

    data = tmp_path_factory.mktemp("upgraded")
    with running_replicas(data, postgres.new_database(), prepare=older) as stack:
        yield stack


@pytest.mark.timeout(limit(150))
def test_sessions_at_work_lose_nothing_while_their_processes_are_upgraded(
    replicas: Replicas,
) -> None:
    replicas.model.default(slowly)
    rolling = Rolling(replicas, int(share(AT_WORK, least=8)))
    asyncio.run(rolling.run(OLD))
    rolling.judged()
    assert max(rolling.longest.values()) < rolling.undisturbed + LONGER, rolling.longest
    assert all(RELEASE not in replicas.processes[name].environment for name in OLD)
