"""Every process is replaced in turn while sessions run: nothing is lost or takes long (P8)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import pytest

from tests.doubles.postgres import Cluster
from tests.doubles.soak import limit, share
from tests.e2e.replicas import BRAINS, GATEWAYS, SESSIONS, Replicas, running_replicas
from tests.fault.rolling import Rolling, slowly

AT_WORK = 50
LONGER = 10.0 if share(1) >= 1 else 30.0
"""Seconds that a restart may cost a turn, more where other tests take the processor as well."""
ALL = ("registry", "vault_proxy", *SESSIONS, "hands", *BRAINS, *GATEWAYS)
PATIENCE = "30"
"""Seconds that what is under way has: nothing takes so long, on a busy machine neither."""
CLOSED = 0 if share(1) >= 1 else AT_WORK // 10
"""Requests to the model that are made anew: a brain that takes its lease up again too late, where
other tests take the processor as well, loses one and no more."""
TROUBLE = {"stop_deadline_passed", "failed", "rpc_failed", "work_failed", "cannot_start"}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: Cluster) -> Iterator[Replicas]:
    """Two of each of which there may be two."""
    drains = {"DROVER_HANDS_DRAIN_SECONDS": PATIENCE, "DROVER_BRAIN_DRAIN_SECONDS": PATIENCE}
    data = tmp_path_factory.mktemp("rolling")
    with running_replicas(data, postgres.new_database(), **drains) as stack:
        yield stack


@pytest.mark.timeout(limit(150))
def test_sessions_at_work_lose_nothing_and_hardly_wait_while_every_process_is_replaced(
    replicas: Replicas,
) -> None:
    replicas.model.default(slowly)
    rolling = Rolling(replicas, AT_WORK)
    asyncio.run(rolling.run(ALL))
    counts = rolling.judged()
    # Commands under way have ended, and models have answered what they were asked.
    assert counts["unknown"] == 0
    assert counts["closed_requests"] <= CLOSED
    longest, undisturbed = rolling.longest, rolling.undisturbed
    sys.stdout.write(f"{len(rolling.turns)} turns, undisturbed {undisturbed:.1f} s, {longest}\n")
    assert max(longest.values()) < undisturbed + LONGER, longest
    told = [line for line in replicas.log(*ALL) if line["event"] in TROUBLE]
    assert told == []
