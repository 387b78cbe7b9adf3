"""F3: two brains wake the same session at once, a thousand times: one holder each time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest

from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.status import from_rpc_error
from chassis.secret import Secret
from drover.brain.v1 import brain_service_pb2
from drover.brain.v1.brain_service_pb2_grpc import BrainServiceStub
from drover.session.v1 import session_pb2, session_service_pb2
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from tests.doubles.messages_api import text
from tests.doubles.postgres import Cluster
from tests.doubles.session_events import message
from tests.doubles.session_world import kinds
from tests.doubles.soak import limit, share
from tests.e2e.driving import new_session
from tests.e2e.replicas import Replicas
from tests.fault.fleet import running_fleet

WAKES = 1000 if share(1) >= 1 else 60
_A_SESSION = 50
"""Wakes of one session: a longer log takes longer to read."""

_BRAINS = ("brain-1", "brain-2")


@pytest.fixture(params=["sqlite", "postgresql"])
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: Cluster
) -> Iterator[Replicas]:
    """Two brains that nobody wakes but the test; on PostgreSQL, two session services."""
    of_postgres = request.param == "postgresql"
    url = postgres.new_database() if of_postgres else None
    sessions = ("session-1", "session-2") if of_postgres else ("session-1",)
    names = ("registry", "hands", "vault_proxy", *sessions, *_BRAINS, "gateway-1")

    def prepare(stack: Replicas) -> None:
        for name in sessions:
            stack.processes[name].environment["DROVER_BRAIN_ADDRESSES"] = ""

    with running_fleet(tmp_path_factory.mktemp("brains"), url, *names, prepare=prepare) as stack:
        stack.model.default(lambda _request: text("ok"))
        yield stack


@asynccontextmanager
async def stubs(stack: Replicas) -> AsyncIterator[tuple[Any, list[Any]]]:
    """Clients of the session services, called in turns, and of each brain."""
    token = Secret(stack.token)
    sessions = ",".join(stack.address(name) for name in stack.sessions)
    async with AsyncExitStack() as opened:
        channels = [
            await opened.enter_async_context(open_channel(address, token))
            for address in (sessions, *map(stack.address, _BRAINS))
        ]
        yield SessionServiceStub(channels[0]), [BrainServiceStub(one) for one in channels[1:]]


async def wake(brain: Any, session_id: str) -> Reason | None:
    """Has a brain see to a session; what it was refused with."""
    try:
        await brain.Wake(brain_service_pb2.WakeRequest(session_id=session_id), timeout=60)
    except grpc.RpcError as error:
        return from_rpc_error(error).reason
    return None


@pytest.mark.timeout(limit(150))
async def test_of_two_brains_that_wake_a_session_at_once_one_holds_it(fleet: Replicas) -> None:
    rounds, refused = WAKES, 0
    async with stubs(fleet) as (sessions, brains):
        for start in range(0, rounds, _A_SESSION):
            with fleet.client() as client:
                session = await asyncio.to_thread(new_session, client)
            count = min(_A_SESSION, rounds - start)
            for number in range(count):
                request = session_service_pb2.EmitEventsRequest(
                    session_id=session.id, events=[message(f"{number}")]
                )
                await sessions.EmitEvents(request)
                ends = await asyncio.gather(*(wake(brain, session.id) for brain in brains))
                assert set(ends) <= {None, Reason.LEASE_HELD}
                assert None in ends
                refused += ends.count(Reason.LEASE_HELD)
            await check(fleet, sessions, session.id, count)
    assert refused > (rounds / 10 if share(1) >= 1 else 0)


async def check(fleet: Replicas, sessions: Any, session_id: str, turns: int) -> None:
    """Each message was answered once, by one brain, and the log has no gap and no fork."""
    log: list[Any] = []
    while True:
        after = log[-1].seq if log else 0
        request = session_service_pb2.GetEventsRequest(
            session_id=session_id, after_seq=after, limit=1000
        )
        if not (page := (await sessions.GetEvents(request)).data):
            break
        log += page
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert len({event.id for event in log}) == len(log)
    found = kinds(log)
    for kind in ("user_message", "agent_message", "session_status_idle", "session_status_running"):
        assert found.count(kind) == turns, kind
    opened = [
        line["generation"]
        for line in fleet.log(*fleet.sessions, event="lease_opened")
        if line["session_id"] == session_id
    ]
    assert sorted(opened) == list(range(1, len(opened) + 1))
    request = session_service_pb2.GetSessionRequest(session_id=session_id)
    session = (await sessions.GetSession(request)).session
    assert session.status == session_pb2.SESSION_STATUS_IDLE
