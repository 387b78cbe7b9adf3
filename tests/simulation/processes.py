"""The processes, each built as its `main` builds it, around the simulated ports."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from chassis.errors import DroverError
from drover.agent.v1.agent_service_pb2_grpc import add_AgentServiceServicer_to_server
from drover.brain.v1.brain_service_pb2_grpc import add_BrainServiceServicer_to_server
from drover.environment.v1.environment_service_pb2_grpc import (
    add_EnvironmentServiceServicer_to_server,
)
from drover.hands.v1.hands_service_pb2_grpc import (
    HandsServiceStub,
    add_HandsServiceServicer_to_server,
)
from drover.session.v1.checkpoint_service_pb2_grpc import (
    CheckpointServiceStub,
    add_CheckpointServiceServicer_to_server,
)
from drover.session.v1.session_service_pb2_grpc import (
    SessionServiceStub,
    add_SessionServiceServicer_to_server,
)
from services.brain.clients.checkpoints import CheckpointSender
from services.brain.domain.decision import Limits
from services.brain.harness.minimal import MinimalHarness
from services.brain.harness.port import Setup
from services.brain.harness.registry import HarnessRegistry
from services.brain.harness.standard import StandardHarness
from services.brain.loop.checkpoints import Checkpointing
from services.brain.loop.pool import BrainPool
from services.brain.loop.retry import RetryPolicy
from services.brain.loop.state_cache import StateCache
from services.brain.loop.sync_points import NoSyncPoints
from services.brain.loop.turn import Ports
from services.brain.loop.worker import Worker
from services.brain.rpc import BrainRpc
from services.hands.custody import Custody
from services.hands.domain.limits import MIB
from services.hands.domain.limits import Limits as HandLimits
from services.hands.egress.grants import Grants
from services.hands.executor import Executor
from services.hands.pool import Pool, PoolSize
from services.hands.remote.granted import RemoteGrants
from services.hands.remote.mcp import McpTools
from services.hands.remote.outside import Outside
from services.hands.remote.spilling import Spilling
from services.hands.rpc import HandsRpc
from services.session.clients.brain import BrainClient
from services.session.clients.files import Files
from services.session.clients.hands import HandsClient
from services.session.clients.registry import Registry
from services.session.clients.vaults import Vaults
from services.session.commits import Commits
from services.session.dispatch import Dispatcher
from services.session.domain.cursor import Cursors
from services.session.feed import Feed
from services.session.hands import HandReleases
from services.session.leases import Leases
from services.session.rpc.checkpoints import CheckpointRpc
from services.session.rpc.parts import Parts
from services.session.rpc.servicer import SessionRpc
from services.session.watch import Watch
from tests.doubles.hands_handovers import MemoryHandOvers
from tests.simulation.disk import Delayed, Store
from tests.simulation.sandbox import Backend, Workspaces

if TYPE_CHECKING:
    from catalogue.models import Catalogue
    from tests.simulation.loop import Life
    from tests.simulation.world import World

BRAINS = ("brain-1", "brain-2")
_REAP_SECONDS = 15.0


def registry(world: World, life: Life) -> None:
    """One agent and one environment, which never fail."""
    server = world.network.serve(life, world.authors.new_id)
    add_AgentServiceServicer_to_server(cast("Any", world.agents), cast("Any", server))
    add_EnvironmentServiceServicer_to_server(cast("Any", world.environments), cast("Any", server))


class SessionProcess:
    """The session service."""

    def __init__(self, world: World, life: Life) -> None:
        self.store = Store(world.disk, life)
        self.store.acknowledge_early = world.mutations.acknowledge_early
        self._world = world
        self._life = life

    async def run(self) -> None:
        world, life = self._world, self._life

        def channel(address: str) -> Any:
            return world.network.channel(life, address)

        brains = [BrainClient(name, channel(name)) for name in BRAINS]
        dispatcher = Dispatcher(brains, cast("Any", self.store))
        leases = Leases(dispatcher.desert)
        feed = Feed(leases.want_previews)
        releases = HandReleases(cast("Any", self.store), HandsClient(channel("hands")))
        watch = Watch(cast("Any", self.store), feed, leases, dispatcher)
        async with AsyncExitStack() as stack:
            commits = await stack.enter_async_context(
                Commits(cast("Any", self.store), [dispatcher, leases, releases], [feed])
            )
            parts = Parts(
                store=cast("Any", self.store),
                checkpoints=cast("Any", Delayed(world.disk, life, world.disk.checkpoints)),
                commits=commits,
                copying=cast("Any", None),
                feed=feed,
                preview=feed.preview,
                leases=leases,
                registry=Registry(channel("registry")),
                vaults=Vaults(None),
                files=Files(channel("registry"), cast("Any", world.disk.loop)),
                memory_stores=cast("Any", None),
                models=world.models,
                cursors=Cursors(b"simulated"),
                ids=world.authors.new_id,
                stuck_seconds=30.0,
                git_hosts=(),
                files_due=lambda: None,
            )
            server = world.network.serve(life, world.authors.new_id)
            add_SessionServiceServicer_to_server(SessionRpc(parts), cast("Any", server))
            kept = CheckpointRpc(parts.checkpoints)
            add_CheckpointServiceServicer_to_server(kept, cast("Any", server))
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(dispatcher.run(commits))
            tasks.create_task(releases.run())
            if world.disk.may_lie:
                tasks.create_task(watch.run())


class _Counts:
    """What became of checkpoints."""

    def __init__(self, world: World) -> None:
        self._world = world

    def count(self, outcome: str) -> None:
        self._world.counts[f"checkpoint {outcome}"] += 1


class BrainProcess:
    """A brain."""

    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life
        self.cache = StateCache()

    async def run(self) -> None:
        world, life = self._world, self._life
        sessions = world.network.channel(life, "session")
        metrics = cast("Any", _Counts(world))
        sender = CheckpointSender(CheckpointServiceStub(cast("Any", sessions)), metrics)
        worker = Worker(
            name=repr(life),
            sessions=SessionServiceStub(cast("Any", sessions)),
            hands=HandsServiceStub(cast("Any", world.network.channel(life, "hands"))),
            harnesses=world.harnesses,
            ports=Ports(
                model=cast("Any", world.model),
                retry=RetryPolicy(attempts=4, longest=4.0, chance=world.rng),
                clock=world.loop,
                ids=world.authors.new_id,
                points=NoSyncPoints(),
                models=world.models,
            ),
            cache=self.cache,
            checkpointing=Checkpointing(world.harnesses, sender.send, metrics),
        )

        async def work(session_id: str) -> int:
            world.authors.begin(life, session_id)
            try:
                return await worker.work(session_id)
            except DroverError:
                raise
            except Exception as error:
                world.failures.append(f"{life!r} broke over {session_id}: {error!r}")
                raise

        async with sender, BrainPool(work, world.max_sessions) as pool:
            server = world.network.serve(life, world.authors.new_id)
            add_BrainServiceServicer_to_server(BrainRpc(pool), cast("Any", server))
            await asyncio.Event().wait()


class HandsProcess:
    """The hands."""

    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life
        self.backend = Backend(world.disk, life, world.fate)

    async def run(self) -> None:
        world = self._world
        workspaces = cast("Any", Workspaces(world.disk))
        async with asyncio.TaskGroup() as tasks:
            pool = Pool(
                cast("Any", self.backend),
                workspaces,
                tasks,
                limits=HandLimits(
                    memory_bytes=MIB, processes=1, cpus=1.0, file_bytes=MIB, tmp_bytes=MIB
                ),
                size=PoolSize(max_live=2, idle_seconds=30.0, spares=1, starts_at_once=2),
                clock=world.loop,
                ids=world.authors.new_id,
            )
            journal = Delayed(world.disk, self._life, world.disk.journal)
            custody = Custody(MemoryHandOvers(world.disk.journal), pool, workspaces)
            outside = None
            if world.server is not None:
                grants = RemoteGrants(Grants(world.server, tasks, world.loop), world.loop)
                spilling = Spilling(pool, custody)
                mcp = McpTools(world.server, grants, spilling, world.loop)
                outside = Outside(mcp, cast("Any", None), grants)
            executor = Executor(cast("Any", journal), pool, tasks, custody, outside)
            pool.fill()
            server = world.network.serve(self._life, world.authors.new_id)
            rpc = HandsRpc(executor, outside.mcp if outside is not None else None)
            add_HandsServiceServicer_to_server(rpc, cast("Any", server))
            while True:
                await asyncio.sleep(_REAP_SECONDS)
                await pool.reap()
                executor.prune()


def harnesses(models: Catalogue) -> HarnessRegistry:
    """The harnesses that ship; turns are short, so that their limit is met, too."""
    setup = Setup(models=models, max_output_tokens=1000, limits=Limits(requests=12, prices=models))
    standard = StandardHarness(
        max_output_tokens=setup.max_output_tokens, limits=setup.limits, models=models
    )
    return HarnessRegistry(standard, [MinimalHarness(setup)])
