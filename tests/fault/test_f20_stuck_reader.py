"""F20: of 200 readers one never reads: it is dropped and can resume, the others go on as ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest

from chassis.grpc.channel import open_channel
from chassis.ids import new_id
from chassis.secret import Secret
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from tests.doubles.session_events import said
from tests.doubles.session_stack import Lease
from tests.e2e.driving import new_session
from tests.e2e.replicas import Replicas
from tests.fault.fleet import running_fleet
from tests.fault.streams import At, Follower, ids, listed, opened

READERS = 200
STALL = 2.0
EVENTS = 40
"""Events of a round, told one by one: each once everybody has the one before."""
TEXT = "x" * 16_000
TIMES_WORSE = 5
"""By how much the others' p99 may differ, since it does so by itself on a machine at work."""
DEADLINE = 60.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    data = tmp_path_factory.mktemp("stuck")
    parts = ("registry", "session-1", "gateway-1")
    with running_fleet(data, None, *parts, DROVER_STALL_SECONDS=str(STALL)) as running:
        yield running


class Crowd:
    """Those that read, and how long what was told has taken to reach each."""

    def __init__(self) -> None:
        self.followers: list[Follower] = []
        self._told: dict[str, float] = {}
        self._latencies: list[float] = []
        self._all_have_it = asyncio.Event()

    async def grow(self, at: At, count: int) -> None:
        """Opens so many streams."""
        self.followers += [await Follower(at, self._heard).open() for _ in range(count)]

    async def close(self) -> None:
        """Cuts them all."""
        for follower in self.followers:
            await follower.close()

    async def p99(self, lease: Lease) -> float:
        """Of a round, told by who holds the lease."""
        self._latencies.clear()
        for _ in range(EVENTS):
            event = said(TEXT, new_id("sevt"))
            self._all_have_it.clear()
            self._told = {event.id: time.monotonic()}
            expected = len(self._latencies) + len(self.followers)
            await lease.append(event)
            async with asyncio.timeout(DEADLINE):
                while len(self._latencies) < expected:
                    self._all_have_it.clear()
                    await self._all_have_it.wait()
        return sorted(self._latencies)[int(0.99 * len(self._latencies))]

    def _heard(self, event_id: str) -> None:
        if event_id in self._told:
            self._latencies.append(time.monotonic() - self._told[event_id])
            self._all_have_it.set()


@asynccontextmanager
async def leasing(fleet: Replicas, session_id: str) -> AsyncIterator[Lease]:
    """The session's lease: the test is its brain."""
    async with open_channel(fleet.address("session-1"), Secret(fleet.token)) as channel:
        yield await Lease(SessionServiceStub(channel), session_id).open()


async def open_streams(fleet: Replicas) -> int:
    """How many streams the gateway has open."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"{fleet.url()}/metrics")).text
    [line] = [one for one in text.splitlines() if one.startswith("drover_http_open_streams ")]
    return int(float(line.split()[1]))


async def test_a_reader_that_never_reads_is_dropped_and_the_others_do_not_notice(
    fleet: Replicas,
) -> None:
    with fleet.client() as client:
        session = await asyncio.to_thread(new_session, client)
    at = At(fleet.url(), session.id)
    async with AsyncExitStack() as exits:
        crowd = Crowd()
        exits.push_async_callback(crowd.close)
        await crowd.grow(at, READERS - 1)
        # Not before: it ends where nothing is told for a while.
        lease = await exits.enter_async_context(leasing(fleet, session.id))
        await crowd.p99(lease)  # warm
        without = [await crowd.p99(lease)]

        stuck = await exits.enter_async_context(opened(at, receive_buffer=4_096))
        await stuck.answered()
        position = len(crowd.followers[0].seen)
        beside = []
        async with asyncio.timeout(DEADLINE):
            while await open_streams(fleet) == READERS or not beside:
                beside.append(await crowd.p99(lease))
        without.append(await crowd.p99(lease))
        assert min(beside) < TIMES_WORSE * max(without)

        while await stuck.more():
            pass
        seen = ids(stuck.body.data)
        with fleet.client() as client:
            log = await asyncio.to_thread(listed, client, session.id)
        assert seen == log[position : position + len(seen)]
        assert len(seen) < len(log) - position

        back = await exits.enter_async_context(opened(At(fleet.url(), session.id, last=seen[-1])))
        assert seen + await back.until(log[-1]) == log[position:]
        assert all(follower.seen == log for follower in crowd.followers)
