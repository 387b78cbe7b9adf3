"""Replicas of the session service in one process, on one PostgreSQL, with brains of the test's."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager

from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from drover.agent.v1.agent_service_pb2_grpc import add_AgentServiceServicer_to_server
from drover.brain.v1.brain_service_pb2_grpc import add_BrainServiceServicer_to_server
from drover.environment.v1.environment_service_pb2_grpc import (
    add_EnvironmentServiceServicer_to_server,
)
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from services.session.main import SessionSettings, build
from services.session.store.schema import SCHEMA
from storage.migrate import migrate
from tests.doubles.session_registry import FakeAgents, FakeEnvironments
from tests.doubles.session_stack import TOKEN, FakeBrain, Service
from tests.doubles.standing import PromptExit


class Replicas:
    """Two replicas and the brains that they share, whose own calls go to both in turns."""

    def __init__(self, services, brains, stacks):
        self.one, self.other, self.both = services
        self.brains = brains
        self._stacks = stacks

    async def stop(self, replica):
        """Ends a replica: its streams break, its leases stay."""
        await self._stacks[(self.one, self.other).index(replica)].aclose()


@asynccontextmanager
async def running_replicas(data_dir, url, *, works=(), **settings):
    """Two replicas over the database at `url`, with one brain for each of `works`."""
    await migrate(url, SCHEMA)
    run = data_dir / "run"
    run.mkdir(exist_ok=True)
    (run / "token").write_text(TOKEN)
    token = SessionSettings(data_dir=data_dir).token()
    async with PromptExit() as stack:

        async def serve(*services):
            server = GrpcServer("127.0.0.1:0", token, reflection=False)
            for add, servicer in services:
                server.add(add, servicer)
            await server.start()
            stack.push_async_callback(server.stop, 0)
            return server.address

        agents, environments = FakeAgents(), FakeEnvironments()
        registry = await serve(
            (add_AgentServiceServicer_to_server, agents),
            (add_EnvironmentServiceServicer_to_server, environments),
        )
        brains = [FakeBrain(work) for work in works]
        told = SessionSettings(
            data_dir=data_dir,
            database_url=url,
            registry_address=registry,
            brain_addresses=tuple(
                [await serve((add_BrainServiceServicer_to_server, brain)) for brain in brains]
            ),
            reflection=False,
            **settings,
        )
        stacks = [await stack.enter_async_context(AsyncExitStack()) for _ in range(2)]
        addresses = [(await build(told, own)).address for own in stacks]

        async def client(address):
            async def open_stub():
                channel = open_channel(address, token)
                stack.push_async_callback(channel.close, None)
                return SessionServiceStub(channel)

            service = Service(await open_stub(), agents, environments, brains, open_stub)
            service.address = address
            return service

        services = [await client(address) for address in (*addresses, ",".join(addresses))]
        for brain in brains:
            brain.stub = services[-1].stub
        yield Replicas(services, brains, stacks)
