"""F14: the disk of the log is full: appends are refused whole, reads served, and it passes."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from chassis.errors import DroverError, Reason
from tests.doubles.messages_api import Gate, says, text
from tests.doubles.postgres import Cluster
from tests.doubles.soak import share
from tests.doubles.volume import Volume, volume
from tests.e2e.driving import new_session, send
from tests.e2e.replicas import Replicas
from tests.fault.crowd import Crowd, crowd
from tests.fault.fleet import running_fleet
from tests.fault.histories.checker import check
from tests.fault.histories.history import Outcome, Write
from tests.fault.histories.keys import posted
from tests.fault.histories.service import reached
from tests.fault.vitals import Complaints

PARTS = ("registry", "session-1", "gateway-1", "brain-1")
SIZE = 24  # MiB
LARGE = 128 * 1024
OnDisk = Callable[[Path, Cluster], AbstractContextManager[tuple[Replicas, Volume]]]
ENOUGH = 100
"""Large requests, after which a disk that is full must have refused one."""
BACK_WITHIN = 5.0 if share(1) >= 1 else 30.0


def incompressible() -> str:
    return secrets.token_hex(LARGE // 2)


@contextmanager
def on_sqlite(data: Path, _cluster: Cluster) -> Iterator[tuple[Replicas, Volume]]:
    """The session service with its file on a small disk."""
    with volume(data / "disk", SIZE) as disk:
        file = f"sqlite:///{disk.path}/session.db"

        def prepare(fleet: Replicas) -> None:
            fleet.processes["session-1"].environment["DROVER_SESSION_DATABASE_URL"] = file

        with running_fleet(data, None, *PARTS, prepare=prepare) as fleet:
            yield fleet, disk


@contextmanager
def on_postgresql(data: Path, cluster: Cluster) -> Iterator[tuple[Replicas, Volume]]:
    """The session service with its tables on a small disk; the server's log has room."""
    with volume(cluster.directory / "disk", SIZE) as disk:
        place = disk.path / "tables"
        place.mkdir()
        shutil.chown(place, "postgres")
        url = cluster.new_database()
        name = url.rpartition("/")[2]
        cluster.execute(f"CREATE TABLESPACE small LOCATION '{place}'", database=name)
        cluster.execute(f"ALTER DATABASE {name} SET default_tablespace = small", database=name)
        try:
            with running_fleet(data, url, *PARTS) as fleet:
                yield fleet, disk
        finally:
            disk.free()
            cluster.execute(f"DROP DATABASE {name} WITH (FORCE)", database="postgres")
            cluster.execute("DROP TABLESPACE small", database="postgres")


async def fill_up(clients: Crowd, session: str) -> None:
    """Sends until the first refusal."""
    for number in range(ENOUGH):
        if not await clients.post(session, f"large-{number}", padding=incompressible()):
            return
    pytest.fail("a full disk refused nothing")


async def story(fleet: Replicas, disk: Volume, sessions: tuple[str, str], gate: Gate) -> Crowd:
    """Writes and reads while the disk is full, and once it has room again."""
    session, thinking = sessions
    async with (
        crowd(fleet.url(), fleet.headers) as clients,
        reached(fleet.address("session-1"), fleet.peers) as service,
    ):
        assert await clients.post(session, "first-0")
        disk.fill()
        gate.release()  # what the model has said cannot be kept now
        await fill_up(clients, session)
        refused_ones = [f"refused-{part}" for part in range(3)]
        assert not await clients.post(session, *refused_ones, padding=incompressible())
        refused = [answer for answer in clients.answers if answer.status != 200]
        assert len(refused) == 2
        for answer in refused:
            assert answer.status == 529
            assert '"overloaded_error"' in answer.body
            assert int(answer.headers["retry-after"]) >= 1
        with pytest.raises(DroverError) as caught:
            await service.emit(session, [posted("grpc-0", padding=incompressible())])
        assert caught.value.reason is Reason.RESOURCE_EXHAUSTED
        assert caught.value.retry_after
        now = time.monotonic()
        clients.history.writes.append(
            Write("grpc", session, "queued", ("grpc-0",), Outcome.REFUSED, now, now)
        )
        for path in ("", "/events", "/threads"):
            answer = await clients.request("GET", f"/v1/sessions/{session}{path}")
            assert answer is not None
            assert answer.status_code == 200
        state = await clients.request("GET", f"/v1/sessions/{thinking}")
        assert state is not None
        assert state.json()["status"] == "running"

        disk.free()
        freed = time.monotonic()
        taken_ones = [f"taken-{part}" for part in range(3)]
        assert await clients.post(session, *taken_ones, padding=incompressible())
        idle = False
        while not idle:
            assert time.monotonic() - freed <= BACK_WITHIN
            answer = await clients.request("GET", f"/v1/sessions/{thinking}")
            idle = answer is not None and answer.json()["status"] == "idle"
        assert clients.unfit == []
        await clients.logs_at_rest(fleet.address("session-1"), fleet.peers)
    return clients


@pytest.mark.parametrize("database", [on_sqlite, on_postgresql])
def test_full_disk_refuses_appends_whole_serves_reads_and_passes(
    tmp_path: Path, breakable: Cluster, database: OnDisk
) -> None:
    gate = Gate()
    with database(tmp_path, breakable) as (fleet, disk), fleet.client() as client:
        fleet.model.on(says("think"), text(incompressible()).stall(gate))
        fleet.model.default(lambda _: text("ok"))
        session, thinking = (new_session(client, tools=()).id for _ in range(2))
        send(client, thinking, "think")
        gate.wait_reached()
        before = fleet.pid("session-1"), fleet.pid("brain-1")
        complaints = Complaints(tmp_path / "logs")
        clients = asyncio.run(story(fleet, disk, (session, thinking), gate))
        assert complaints.found() == []
        assert all(fleet.processes[name].alive for name in PARTS)
        assert (fleet.pid("session-1"), fleet.pid("brain-1")) == before
    assert [str(violation) for violation in check(clients.history)] == []
