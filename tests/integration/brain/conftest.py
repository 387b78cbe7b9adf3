"""A brain beside doubles of the session service, the hands and the model, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from catalogue.models import load
from chassis.clock import SystemClock
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.ids import new_id
from chassis.secret import Secret
from drover.agent.v1.agent_pb2 import SessionAgent
from drover.agent.v1.model_pb2 import ModelConfig
from drover.agent.v1.tool_pb2 import AgentToolset, McpServer, Tool
from drover.file.v1.file_service_pb2_grpc import (
    FileServiceStub,
    add_FileServiceServicer_to_server,
)
from drover.hands.v1.hands_service_pb2_grpc import (
    HandsServiceStub,
    add_HandsServiceServicer_to_server,
)
from drover.session.v1.checkpoint_service_pb2_grpc import (
    CheckpointServiceStub,
    add_CheckpointServiceServicer_to_server,
)
from drover.session.v1.session_pb2 import Session
from drover.session.v1.session_service_pb2_grpc import (
    SessionServiceStub,
    add_SessionServiceServicer_to_server,
)
from services.brain.clients.checkpoints import CheckpointSender
from services.brain.clients.files import RegistryFiles
from services.brain.domain.decision import Limits
from services.brain.harness.port import Harness
from services.brain.harness.registry import HarnessRegistry
from services.brain.harness.standard import StandardHarness
from services.brain.loop.checkpoints import Checkpointing
from services.brain.loop.pool import BrainPool
from services.brain.loop.retry import RetryPolicy
from services.brain.loop.state_cache import StateCache
from services.brain.loop.sync_points import NoSyncPoints, SyncPoints
from services.brain.loop.turn import Ports
from services.brain.loop.worker import Worker
from services.brain.metrics import CheckpointMetrics
from tests.doubles.file_service import FakeFiles
from tests.doubles.hands_service import FakeHands
from tests.doubles.lease_service import FakeCheckpoints, FakeSession, FakeSessions
from tests.doubles.scripted_model import ScriptedModel
from tests.doubles.standing import PromptExit

TOKEN = Secret("token")
AT_ONCE = RetryPolicy(attempts=3, base=0.0)
TOOLSET = Tool(agent_toolset=AgentToolset())


@dataclass
class Rig:
    """Everything around a brain; brains are made as often as a test kills them."""

    sessions: FakeSessions
    checkpoints: FakeCheckpoints
    hands: FakeHands
    model: ScriptedModel
    stack: AsyncExitStack
    session_stub: SessionServiceStub
    hands_stub: HandsServiceStub
    checkpoint_stub: CheckpointServiceStub
    files: FakeFiles
    file_stub: FileServiceStub
    workers: list[Worker] = field(default_factory=list)
    """Those of the brains, as they were made."""

    def session(
        self,
        *tools: Tool,
        system: str = "Be brief.",
        model: str = "claude-test",
        metadata: Mapping[str, str] | None = None,
        self_hosted: bool = False,
    ) -> FakeSession:
        agent = SessionAgent(
            id="agent_1",
            version=1,
            name="Worker",
            model=ModelConfig(id=model),
            system=system,
            tools=tools or (TOOLSET,),
            mcp_servers=[
                McpServer(name=name, url=f"https://{name}.example.com/mcp")
                for tool in tools
                if (name := tool.mcp_toolset.mcp_server_name)
            ],
            metadata=metadata or {},
        )
        made = Session(id=new_id("sesn"), agent=agent, primary_thread_id="sthr_1")
        if self_hosted:
            made.environment.self_hosted.SetInParent()
        return self.sessions.add(made)

    async def brain(
        self,
        *,
        points: SyncPoints | None = None,
        retry: RetryPolicy = AT_ONCE,
        limits: Limits | None = None,
        harness: Harness | None = None,
        others: Iterable[Harness] = (),
        max_sessions: int = 8,
        judge_seconds: float = 60.0,
        file_cache_bytes: int = 1_000_000,
    ) -> BrainPool:
        models = load(None)
        limits = limits or Limits(prices=models)
        harnesses = HarnessRegistry(harness or StandardHarness(limits=limits), others)
        metrics = CheckpointMetrics()
        sender = CheckpointSender(self.checkpoint_stub, metrics)
        await self.stack.enter_async_context(sender)
        worker = Worker(
            name="brain",
            sessions=self.session_stub,
            hands=self.hands_stub,
            harnesses=harnesses,
            ports=Ports(
                model=self.model,
                retry=retry,
                clock=SystemClock(),
                ids=new_id,
                points=points or NoSyncPoints(),
                models=models,
                judge_seconds=judge_seconds,
                files=RegistryFiles(self.file_stub, max_bytes=file_cache_bytes),
            ),
            cache=StateCache(),
            checkpointing=Checkpointing(harnesses, sender.send, metrics),
        )
        self.workers.append(worker)
        return await self.stack.enter_async_context(BrainPool(worker.work, max_sessions))

    async def wake(self, session: FakeSession, brain: BrainPool | None = None) -> int:
        """Has a brain work on a session until it needs none."""
        pool = brain or await self.brain()
        async with asyncio.timeout(60):
            return await pool.wake(session.session.id)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection, call or checkpoint is given up because the machine is busy."""
    monkeypatch.setattr("services.brain.clients.lease.SILENCE", 60.0)
    monkeypatch.setattr("services.brain.clients.checkpoints.DEADLINE", 60.0)
    monkeypatch.setattr("services.brain.clients.hands._CANCEL_DEADLINE", 60.0)
    monkeypatch.setattr("services.brain.clients.hands._LIST_DEADLINE", 60.0)
    monkeypatch.setattr("services.brain.loop.tool_runs.CANCEL_GRACE", 60.0)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with PromptExit() as stack:
        sessions, hands, files = FakeSessions(), FakeHands(), FakeFiles()
        checkpoints = FakeCheckpoints(sessions)
        server = GrpcServer("127.0.0.1:0", TOKEN, reflection=False)
        server.add(add_SessionServiceServicer_to_server, sessions)
        server.add(add_CheckpointServiceServicer_to_server, checkpoints)
        server.add(add_HandsServiceServicer_to_server, hands)
        server.add(add_FileServiceServicer_to_server, files)
        await server.start()
        stack.push_async_callback(server.stop, 0)
        channel = await stack.enter_async_context(open_channel(server.address, TOKEN))
        yield Rig(
            sessions,
            checkpoints,
            hands,
            ScriptedModel(),
            stack,
            SessionServiceStub(channel),
            HandsServiceStub(channel),
            CheckpointServiceStub(channel),
            files,
            FileServiceStub(channel),
        )
