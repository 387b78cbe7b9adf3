"""F23: archive and delete race everything that appends: it fails cleanly, and leaves no orphan."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import httpx2
import pytest

from chassis.errors import DroverError, Reason
from chassis.grpc.server import GrpcServer
from chassis.grpc.status import from_rpc_error
from chassis.secret import Secret
from drover.event.v1 import event_pb2
from drover.hands.v1 import hands_service_pb2, hands_service_pb2_grpc
from drover.session.v1 import lease_pb2
from drover.session.v1 import session_service_pb2 as pb
from services.session.store.schema import SCHEMA
from storage.migrate import migrate
from tests.doubles import traces
from tests.doubles.ports import free_port
from tests.doubles.postgres import Cluster
from tests.doubles.session_events import idle, interrupt, message, running, said
from tests.doubles.session_stack import TOKEN, Lease, Service, running_service, until
from tests.doubles.soak import limit, share
from tests.doubles.standing import PromptExit

SEEDS = 400
GONE = {Reason.NOT_FOUND, Reason.ARCHIVED}
LOST = {*GONE, Reason.LEASE_LOST, Reason.LEASE_HELD}
TAKE = lease_pb2.TAKE_INPUT_ALL


async def turns(stub: Any, session_id: str) -> None:
    """The brain that is woken: takes what there is, says something, and goes idle."""
    lease = await Lease(stub, session_id).open()
    while True:
        await lease.append(running(), said("well"), take=TAKE)
        if (await lease.append(idle(), release=True)).released:
            return


class Hands(hands_service_pb2_grpc.HandsServiceServicer):
    """Notes which hands were released, and whether for good."""

    def __init__(self) -> None:
        self.released: dict[str, bool] = {}

    async def Release(self, request: Any, _context: object) -> Any:
        self.released[request.session_id] = request.purge
        return hands_service_pb2.ReleaseResponse()


@dataclass
class Ground:
    """A session service, its hands, and a look into its tables and counts."""

    service: Service
    hands: Hands
    look: Callable[[str], dict[str, int]]
    metrics: str

    async def rows(self, needle: str) -> dict[str, int]:
        """How many rows of which tables mention `needle`."""
        # Elsewhere: the service is in this process, and must not stand still meanwhile.
        return await asyncio.to_thread(self.look, needle)

    def metric(self, name: str) -> float:
        lines = httpx2.get(self.metrics).text.splitlines()
        [line] = [one for one in lines if one.startswith(f"drover_session_{name} ")]
        return float(line.split()[1])


@pytest.fixture(params=["sqlite", "postgresql"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    settings: dict[str, Any] = {}
    look: Callable[[str], dict[str, int]] = lambda needle: traces.in_sqlite(tmp_path, needle)  # noqa: E731
    if request.param == "postgresql":
        cluster: Cluster = request.getfixturevalue("postgres")
        url = settings["session_database_url"] = cluster.new_database()
        await migrate(url, SCHEMA)
        name = url.rpartition("/")[2]
        look = lambda needle: traces.in_postgres(cluster, name, needle)  # noqa: E731
    hands, port = Hands(), free_port()
    server = GrpcServer("127.0.0.1:0", Secret(TOKEN), reflection=False)
    server.add(hands_service_pb2_grpc.add_HandsServiceServicer_to_server, hands)
    await server.start()
    settings |= {"hands_address": server.address, "metrics_listen": f"127.0.0.1:{port}"}
    async with PromptExit() as stack:
        stack.push_async_callback(server.stop, 0)
        running = running_service(tmp_path, works=(turns,), **settings)
        service = await stack.enter_async_context(running)
        yield Ground(service, hands, look, f"http://127.0.0.1:{port}/metrics")


@dataclass
class Race:
    """One session and those who are at it while it ends."""

    ground: Ground
    session_id: str
    chance: random.Random
    refusals: Counter[Reason]
    acknowledged: list[str] = field(default_factory=list)
    seen: list[list[event_pb2.Event]] = field(default_factory=list)

    async def start(self) -> None:
        """Perhaps a turn before, and then all at once."""
        if self.chance.random() < 0.5:
            await self.send()
        everyone = [self.send, self.stop, self.work, self.rename, self.watch]
        rivals = self.chance.choices(everyone, k=self.chance.randint(2, 5))
        async with asyncio.TaskGroup() as tasks:
            for rival in rivals:
                tasks.create_task(self._later(rival))
            deleting = self.chance.random() < 0.5
            tasks.create_task(self._later(lambda: self.end(deleting=deleting)))
        await (self.check_deleted() if deleting else self.check_archived())

    async def _later(self, act: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(self.chance.uniform(0, 0.006))  # what the race is about
        await act()

    async def refused(self, call: Awaitable[Any], reasons: set[Reason]) -> Any:
        """What a call answers, or nothing if it is refused for one of these reasons."""
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            # gRPC's own word for a write to a stream that was ended at that moment.
            if error.details() == "Internal error from Core":
                return None
            failure = from_rpc_error(error)
        except DroverError as error:
            failure = error
        assert failure.reason in reasons, failure
        self.refusals[failure.reason] += 1
        return None

    # the rivals

    async def send(self) -> None:
        sent = await self.refused(self.ground.service.emit(self.session_id, message()), GONE)
        self.acknowledged += [event.id for event in sent or ()]

    async def stop(self) -> None:
        sent = await self.refused(self.ground.service.emit(self.session_id, interrupt()), GONE)
        self.acknowledged += [event.id for event in sent or ()]

    async def work(self) -> None:
        """A brain that nobody has woken: it takes the lease, works, and gives it back."""
        lease = self.ground.service.lease(self.session_id, holder="rival")
        ours = [running(), said("hm", f"sevt_{self.chance.getrandbits(64):016x}")]

        async def turn() -> None:
            await lease.open()
            if await lease.append(*ours, take=TAKE) is not None:
                self.acknowledged.append(ours[1].id)
            while not (ended := await lease.append(idle(), take=TAKE, release=True)).released:
                assert ended.input_pending

        await self.refused(turn(), LOST)
        await lease.close()

    async def rename(self) -> None:
        request = pb.UpdateSessionRequest(session_id=self.session_id, title="another")
        request.update_mask.paths.append("title")
        await self.refused(self.ground.service.stub.UpdateSession(request), GONE)

    async def watch(self) -> None:
        """Follows the session to its end."""
        stream, frames = self.ground.service.stream(self.session_id, after_event_id=""), []

        async def follow() -> None:
            async with asyncio.timeout(60):
                frames.extend([frame.event async for frame in stream])

        await self.refused(follow(), GONE)
        self.seen.append(frames)

    async def end(self, *, deleting: bool) -> None:
        """Ends the session as soon as it may be."""
        stub = self.ground.service.stub
        ended = None
        while ended is None:
            if deleting:
                call = stub.DeleteSession(pb.DeleteSessionRequest(session_id=self.session_id))
            else:
                call = stub.ArchiveSession(pb.ArchiveSessionRequest(session_id=self.session_id))
            ended = await self.refused(call, {Reason.SESSION_RUNNING})

    # what must be so afterwards

    async def _takes_nothing(self, reason: Reason) -> None:
        service = self.ground.service
        assert await self.refused(service.emit(self.session_id, message()), {reason}) is None
        lease = service.lease(self.session_id)
        assert await self.refused(lease.open(), {reason}) is None
        await lease.close()

    async def check_deleted(self) -> None:
        await self._takes_nothing(Reason.NOT_FOUND)
        for frames in self.seen:
            assert not frames or frames[-1].HasField("session_deleted")
            assert sum(frame.HasField("session_deleted") for frame in frames) <= 1
        await until(lambda: self.ground.hands.released.get(self.session_id) is True)

    async def check_archived(self) -> None:
        await self._takes_nothing(Reason.ARCHIVED)
        log = (await self.ground.service.events(self.session_id)).data
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert log[-1].HasField("session_status_terminated")
        ids = [event.id for event in log]
        assert len(set(ids)) == len(ids)
        assert set(self.acknowledged) <= set(ids)
        for frames in self.seen:
            stamped = [frame.id for frame in frames if frame.seq]
            assert stamped == ids
        await until(lambda: self.ground.hands.released.get(self.session_id) is False)


@pytest.mark.timeout(limit(120))
async def test_whatever_races_the_end_is_kept_whole_or_refused_and_nothing_is_left(
    ground: Ground,
) -> None:
    deleted, refusals, kept = [], Counter[Reason](), 0
    for seed in range(int(share(SEEDS))):
        session = await ground.service.create()
        race = Race(ground, session.id, random.Random(seed), refusals)  # noqa: S311 - to come again
        try:
            await race.start()
        except BaseException:
            print(f"seed {seed}, session {session.id}")  # noqa: T201 - to try it by itself
            raise
        if ground.hands.released[session.id]:
            deleted.append(session.id)
        kept += len(race.acknowledged)
    # There was something to race: each side won often enough.
    assert len(deleted) > share(SEEDS) / 4
    assert kept > share(SEEDS) / 4
    assert min(refusals[one] for one in (*GONE, Reason.SESSION_RUNNING)) > share(SEEDS) / 4, (
        refusals
    )
    for name in ("leases", "subscriptions", "visits"):
        await until(lambda name=name: ground.metric(name) == 0)
    async with asyncio.timeout(30):
        while await ground.rows(deleted[-1]):
            pass
    for session_id in deleted[:: max(1, len(deleted) // 20)]:
        assert await ground.rows(session_id) == {}
