"""F26, below the session service: it is cut off from PostgreSQL, with all that was on the way."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.doubles.partition import Namespace, namespace
from tests.doubles.postgres import Cluster
from tests.doubles.soak import limit, share
from tests.doubles.tcp_proxy import TcpProxy
from tests.e2e.driving import new_session
from tests.e2e.replicas import Replicas
from tests.fault.fleet import running_fleet
from tests.fault.histories.checker import check
from tests.fault.histories.history import Outcome
from tests.fault.histories.run import SESSIONS, Breaker, Run, run
from tests.fault.partitioned import port_of

SEED = 20261202
SECONDS = 28.0
PAUSE = (0.5, 2.0)
CUT = (3.0, 7.0)
HEALED = 5.0 if share(1) >= 1 else 20.0
"""More where other tests take the processor as well."""


@contextmanager
def cut_off(data: Path, cluster: Cluster) -> Iterator[tuple[Replicas, Namespace, int]]:
    """The services, of which the session service has a network of its own; and its way to
    PostgreSQL, by port."""
    url = cluster.new_database()
    with namespace() as net, TcpProxy(cluster.port, listen=net.outside) as way:

        def prepare(fleet: Replicas) -> None:
            session, registry, gateway = (
                fleet.processes[name] for name in ("session-1", "registry", "gateway-1")
            )
            at = port_of(registry.address)
            registry.environment["DROVER_LISTEN"] = f"0.0.0.0:{at}"
            session.network = net.name
            session.environment |= {
                "DROVER_LISTEN": f"{net.inside}:{port_of(session.address)}",
                "DROVER_REGISTRY_ADDRESS": f"{net.outside}:{at}",
                "DROVER_DATABASE_URL": url.replace(f"127.0.0.1:{cluster.port}", way.address),
            }
            gateway.environment["DROVER_SESSION_ADDRESS"] = session.address
            fleet.certify()

        parts = ("registry", "session-1", "gateway-1")
        with running_fleet(data, url, *parts, prepare=prepare) as fleet:
            yield fleet, net, way.port


def cutting(net: Namespace, port: int, result: Run, waited: list[float]) -> Breaker:
    """A partition for some seconds; `waited` is told when writes went on after it."""
    chance = random.Random(SEED)  # noqa: S311 - it must come again as it was

    async def cut() -> str:
        net.cut(port)
        await asyncio.sleep(chance.uniform(*CUT))
        net.heal()
        healed = time.monotonic()
        writes = result.recorder.history.writes
        while not any(
            write.outcome is Outcome.ACKNOWLEDGED and write.began > healed for write in writes[-64:]
        ):
            assert time.monotonic() < healed + 2 * HEALED, "nothing is taken any more"
            await asyncio.sleep(0.02)
        waited.append(time.monotonic() - healed)
        return "cut off PostgreSQL"

    return cut


@pytest.mark.timeout(limit(120))
def test_histories_across_partitions_from_the_database_break_no_promise(
    tmp_path: Path, breakable: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    result, waited = Run(), list[float]()
    with cut_off(tmp_path, breakable) as (fleet, net, port):
        with fleet.client() as client:
            sessions = [new_session(client).id for _ in range(SESSIONS)]
        breakers = [cutting(net, port, result, waited)]
        asyncio.run(
            run(
                fleet,
                sessions,
                breakers,
                seconds=share(SECONDS, least=PAUSE[1] + 2),
                pause=PAUSE,
                seed=SEED,
                result=result,
            )
        )
    with capsys.disabled():
        sys.stdout.write(f"\n{result.report('partitions')}; went on after {max(waited):.1f} s\n")
    assert [str(violation) for violation in check(result.recorder.history)] == []
    assert result.recorder.unfit == []
    assert max(waited) <= HEALED
