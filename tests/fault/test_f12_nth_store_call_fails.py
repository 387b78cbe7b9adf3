"""F12: whichever call to the store fails, the session is in a legal state, and trying again works.

A turn with a tool call, over and over: in the first one the first call to the store fails, then the
second, until a turn has none left to fail. The brain is a real one, with a scripted model.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest

from chassis.clock import SystemClock
from chassis.errors import DroverError, Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.ids import new_id
from chassis.secret import Secret
from drover.agent.v1.tool_pb2 import AgentToolset, Tool
from drover.hands.v1.hands_service_pb2_grpc import (
    HandsServiceStub,
    add_HandsServiceServicer_to_server,
)
from services.brain.harness.registry import HarnessRegistry
from services.brain.harness.standard import StandardHarness
from services.brain.loop.pool import BrainPool
from services.brain.loop.retry import RetryPolicy
from services.brain.loop.state_cache import StateCache
from services.brain.loop.sync_points import NoSyncPoints
from services.brain.loop.turn import Ports
from services.brain.loop.worker import Worker
from services.session.domain.listing import EventsQuery, list_events
from services.session.domain.session import SessionRef, Status
from services.session.store.schema import SCHEMA
from services.session.store.store import SqlSessionStore
from storage import failures
from storage.prepared import Prepared
from tests.doubles.databases import lent
from tests.doubles.hands_service import FakeHands
from tests.doubles.scripted_model import Reply, ScriptedModel, response, text, tool
from tests.doubles.session_events import message
from tests.doubles.session_stack import TOKEN, refusal, running_service
from tests.doubles.session_world import WORKSPACE, kinds

DEADLINE = 60.0  # s, for a turn to come to rest; a lease that runs out is noticed within it
TURN = [
    "user_message",
    "agent_tool_use",
    "agent_tool_result",
    "agent_message",
]


class Saboteur:
    """Counts calls and has one of them fail: before it does anything, or after it is committed."""

    def __init__(self):
        self.calls = 0
        self.at = 0
        self.late = False

    def arm(self, at, *, late):
        self.calls, self.at, self.late = 0, at, late

    @property
    def struck(self):
        return self.calls >= self.at

    async def around(self, call):
        self.calls += 1
        strikes = self.calls == self.at
        if strikes and not self.late:
            raise DroverError(Reason.UNAVAILABLE, "sabotage", retry_after=0.01)
        result = await call()
        if strikes:
            raise DroverError(Reason.UNAVAILABLE, "sabotage, too late", retry_after=0.01)
        return result

    def statement(self):
        self.calls += 1
        if self.calls == self.at:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error


class Turns:
    """A session service with a brain, and turns of sessions of their own."""

    def __init__(self, service, hands, look):
        self.service = service
        self.hands = hands
        self._look = look

    async def send(self, session_id, event):
        """Sends an event until that is acknowledged."""
        async with asyncio.timeout(DEADLINE):
            while (refused := await refusal_of(self.service.emit(session_id, event))) is not None:
                assert refused.reason is Reason.UNAVAILABLE, refused
                await asyncio.sleep(0.01)

    async def rest(self, session_id):
        """The log, once nobody is needed any more."""
        ref = SessionRef(WORKSPACE, session_id)
        query = EventsQuery(limit=1000)
        async with asyncio.timeout(DEADLINE):
            while True:
                state, page = await self._look(
                    lambda tx: (tx.state(ref), list_events(tx, ref, query, None))
                )
                if state.lease_expires_at is None and not state.needs_brain:
                    return state, page.events
                await asyncio.sleep(0.02)


async def refusal_of(call):
    try:
        await call
    except Exception as error:  # noqa: BLE001  # as the client sees it
        return await refusal(_raise(error))
    return None


async def _raise(error):
    raise error


def answer(model, body):
    """Calls a tool first, then says that it is done."""
    behind = body.rfind(b'"tool_result"') > body.rfind(b'"assistant"')
    said = text("done") if behind else tool("bash", {"command": "true"}, call_id=new_id("toolu"))
    model.add(Reply(response(said)))


@asynccontextmanager
async def turns(tmp_path, look, **settings):
    """A running service with two brains, one of which goes on when the other has given up."""
    async with AsyncExitStack() as stack:
        hands, model = FakeHands(), ScriptedModel()
        model.before_each = partial(answer, model)
        server = GrpcServer("127.0.0.1:0", Secret(TOKEN), reflection=False)
        server.add(add_HandsServiceServicer_to_server, hands)
        await server.start()
        stack.push_async_callback(server.stop, 0)
        channel = await stack.enter_async_context(open_channel(server.address, Secret(TOKEN)))
        works = [brain(stack, HandsServiceStub(channel), model, name) for name in "ab"]
        service = await stack.enter_async_context(
            running_service(tmp_path, works=works, **settings)
        )
        service.agents.agent.tools.append(Tool(agent_toolset=AgentToolset()))
        service.agents.agent.metadata.clear()  # the standard harness
        yield Turns(service, hands, look)


def brain(stack, hands, model, name):
    """What a brain does when it is woken."""
    pools = []

    async def work(stub, session_id):
        if not pools:
            worker = Worker(
                name=name,
                sessions=stub,
                hands=hands,
                harnesses=HarnessRegistry(StandardHarness()),
                ports=Ports(
                    model=model,
                    retry=RetryPolicy(attempts=3, base=0.0),
                    clock=SystemClock(),
                    ids=new_id,
                    points=NoSyncPoints(),
                ),
                cache=StateCache(),
            )
            pools.append(await stack.enter_async_context(BrainPool(worker.work, 8)))
        await pools[0].wake(session_id)

    return work


def check(state, log, hands, ran_before):
    """The turn is whole, and everything in it is there once."""
    assert state.activity.status is Status.IDLE
    assert state.waiting.total == 0
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    ids = [event.id for event in log]
    assert len(ids) == len(set(ids))
    names = [name for name in kinds(log) if name in TURN]
    assert names == TURN, log
    assert kinds(log)[-1] == "session_status_idle"
    assert log[-1].session_status_idle.stop_reason.HasField("end_turn")
    [call] = [event.id for event in log if event.HasField("agent_tool_use")]
    assert hands.ran[ran_before:] == [call]


async def sabotaged(saboteur, turns_, *, late):
    """Has each call of a turn fail in turn; answers how many calls a turn has."""
    at = 0
    while True:
        at += 1
        session_id = (await turns_.service.create()).id
        ran = len(turns_.hands.ran)
        turns_.hands.generation = 0  # one hands double for all sessions, and leases of each
        saboteur.arm(at, late=late)
        await turns_.send(session_id, message("go", new_id("sevt")))
        state, log = await turns_.rest(session_id)
        check(state, log, turns_.hands, ran)
        if not saboteur.struck:
            return at - 1


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request):
    if request.param == "sqlite":
        yield {}
        return
    async with lent(request.getfixturevalue("postgres"), SCHEMA) as url:
        yield {"session_database_url": Secret(url)}


@pytest.mark.parametrize("late", [False, True], ids=["refused", "answer lost"])
async def test_whichever_call_to_the_store_fails_a_turn_comes_to_its_end(
    tmp_path, monkeypatch, settings, late
):
    saboteur = Saboteur()
    read, write = SqlSessionStore.read, SqlSessionStore.write
    stores = []

    def reads(self, fn):
        stores.append(self)
        return saboteur.around(lambda: read(self, fn))

    def writes(self, fn, **hints):
        return saboteur.around(lambda: write(self, fn, **hints))

    monkeypatch.setattr(SqlSessionStore, "read", reads)

    def submits(self, fn, **hints):
        return asyncio.ensure_future(writes(self, fn, **hints))

    monkeypatch.setattr(SqlSessionStore, "write", writes)
    monkeypatch.setattr(SqlSessionStore, "submit", submits)
    async with turns(tmp_path, lambda fn: read(stores[-1], fn), **settings) as played:
        assert await sabotaged(saboteur, played, late=late) >= 5


async def test_whichever_statement_fails_a_turn_comes_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "_RETRY_SECONDS", 0.01)
    saboteur = Saboteur()
    quiet = []
    for name in ("execute", "execute_each", "execute_rows"):
        real = getattr(Prepared, name)

        def execute(self, *arguments, real=real):
            if not quiet:
                saboteur.statement()
            return real(self, *arguments)

        monkeypatch.setattr(Prepared, name, execute)
    stores = []
    read = SqlSessionStore.read

    def reads(self, fn):
        stores.append(self)
        return read(self, fn)

    async def look(fn):
        quiet.append(fn)
        try:
            return await read(stores[-1], fn)
        finally:
            quiet.clear()

    monkeypatch.setattr(SqlSessionStore, "read", reads)
    async with turns(tmp_path, look) as played:
        assert await sabotaged(saboteur, played, late=False) >= 15
