"""A session service in this process, with a registry and brains that tests play."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

import grpc

from chassis.errors import DroverError
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.grpc.status import from_rpc_error
from drover.agent.v1.agent_service_pb2_grpc import add_AgentServiceServicer_to_server
from drover.brain.v1 import brain_service_pb2, brain_service_pb2_grpc
from drover.environment.v1.environment_service_pb2_grpc import (
    add_EnvironmentServiceServicer_to_server,
)
from drover.file.v1.file_service_pb2_grpc import add_FileServiceServicer_to_server
from drover.memory.v1.memory_store_service_pb2_grpc import (
    add_MemoryStoreServiceServicer_to_server,
)
from drover.session.v1 import lease_pb2, session_service_pb2
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from services.session.main import SessionSettings, build
from tests.doubles.session_events import idle, running, said, thread_running
from tests.doubles.session_files import FakeFiles, FakeMemoryStores
from tests.doubles.session_registry import (
    AGENT_ID,
    ENVIRONMENT_ID,
    FakeAgents,
    FakeEnvironments,
)
from tests.doubles.standing import PromptExit

DEADLINE = 30.0
TOKEN = "installation-secret"  # noqa: S105  # of this process only


class Lease:
    """The brain's end of a lease stream."""

    def __init__(self, stub, session_id, *, holder="brain", generation=0, after_seq=0, formats=()):
        self._call = stub.HoldLease()
        self._open = lease_pb2.OpenLease(
            session_id=session_id,
            holder=holder,
            generation=generation,
            after_seq=after_seq,
            checkpoint_formats=formats,
        )
        self._ids = itertools.count(1)
        self._responses = []
        self.messages = 0
        self.opened = None
        self.log = []
        self.notices = []

    async def _write(self, *requests):
        await self._call.write(lease_pb2.HoldLeaseRequest(requests=requests))

    async def send_open(self, *appends):
        """Sends the opening, and `appends` in the same message."""
        for append in appends:
            append.request_id = next(self._ids)
        more = [lease_pb2.LeaseRequest(append=append) for append in appends]
        await self._write(lease_pb2.LeaseRequest(open=self._open), *more)

    async def open(self, *appends):
        await self.send_open(*appends)
        self.opened = (await self.read()).opened
        known = self._open.after_seq or self.opened.checkpoint.seq
        while self.opened.head_seq > known + len(self.log):
            self.log += (await self.read()).log.events
        return self

    @property
    def generation(self):
        return self.opened.generation

    async def read(self):
        """The next response; raises the `DroverError` that ends the stream, `None` at its end."""
        while not self._responses:
            try:
                async with asyncio.timeout(DEADLINE):
                    message = await self._call.read()
            except grpc.RpcError as error:
                raise from_rpc_error(error) from None
            if message is grpc.aio.EOF:
                return None
            self.messages += 1
            self._responses = list(message.responses)
        return self._responses.pop(0)

    async def send(self, *events, take=0, release=False, usage=None):
        """Sends an append without waiting for its acknowledgement."""
        request = lease_pb2.AppendEvents(
            request_id=next(self._ids), events=events, take=take, release=release, usage=usage
        )
        await self._write(lease_pb2.LeaseRequest(append=request))

    async def acknowledged(self):
        """The next acknowledgement; notices on the way are kept."""
        while (response := await self.read()) is not None:
            if response.HasField("appended"):
                return response.appended
            self.notices.append(response.input_waiting)
        return None

    async def append(self, *events, **more):
        await self.send(*events, **more)
        return await self.acknowledged()

    async def renew(self):
        await self._write(lease_pb2.LeaseRequest(renew=lease_pb2.RenewLease()))
        return (await self.read()).renewed

    async def preview(self, preview):
        await self._write(lease_pb2.LeaseRequest(preview=preview))

    async def close(self):
        self._call.cancel()


class Stream:
    """A session's stream, frame by frame, however they come."""

    def __init__(self, call):
        self._call = call
        self._frames = []
        self.messages = 0
        self.initial_metadata = call.initial_metadata
        self.cancel = call.cancel

    async def read(self):
        """The next frame, or EOF."""
        while not self._frames:
            response = await self._call.read()
            if response is grpc.aio.EOF:
                return response
            self.messages += 1
            self._frames = list(response.frames)
        return self._frames.pop(0)

    async def __aiter__(self):
        while (frame := await self.read()) is not grpc.aio.EOF:
            yield frame


class FakeBrain(brain_service_pb2_grpc.BrainServiceServicer):
    """A brain whose work is a function of the test's: `await work(stub, session_id)`."""

    def __init__(self, work=None):
        self.work = work
        self.woken = []
        self.stub = None

    async def Wake(self, request, _context):
        self.woken.append(request.session_id)
        if self.work is not None:
            await self.work(self.stub, request.session_id)
        return brain_service_pb2.WakeResponse()


async def echo_turns(stub, session_id):
    """Answers every message with its own text, then goes idle."""
    lease = await Lease(stub, session_id).open()
    thread = lease.opened.session.primary_thread_id
    status, texts = [running(), thread_running(thread)], []
    while True:
        taken = (await lease.append(*status, take=lease_pb2.TAKE_INPUT_NEXT)).taken
        texts += [event.user_message.content[0].text.text for event in taken]
        if (await lease.append(*map(said, texts), idle(), release=True)).released:
            return
        status = []


class Service:
    """The service's address, a stub, and the doubles around it."""

    def __init__(self, stub, agents, environments, brains, open_stub):
        self.address = ""
        self.stub = stub
        self.agents = agents
        self.environments = environments
        self.brains = brains
        self.open_stub = open_stub

    async def another_client(self):
        """The same service over a connection of its own."""
        return Service(
            await self.open_stub(), self.agents, self.environments, self.brains, self.open_stub
        )

    async def create(self, *events, **fields):
        request = session_service_pb2.CreateSessionRequest(
            environment_id=ENVIRONMENT_ID, initial_events=events, **fields
        )
        request.agent.agent.id = AGENT_ID
        return (await self.stub.CreateSession(request)).session

    async def get(self, session_id):
        request = session_service_pb2.GetSessionRequest(session_id=session_id)
        return (await self.stub.GetSession(request)).session

    async def emit(self, session_id, *events, generation=0):
        request = session_service_pb2.EmitEventsRequest(
            session_id=session_id, events=events, generation=generation
        )
        return list((await self.stub.EmitEvents(request)).data)

    async def events(self, session_id, **fields):
        request = session_service_pb2.GetEventsRequest(session_id=session_id, **fields)
        return await self.stub.GetEvents(request)

    def stream(self, session_id, **fields):
        request = session_service_pb2.StreamEventsRequest(session_id=session_id, **fields)
        return Stream(self.stub.StreamEvents(request))

    def lease(self, session_id, **fields):
        return Lease(self.stub, session_id, **fields)


@asynccontextmanager
async def running_service(data_dir, *, works=(), **settings):
    """A service over the files of `data_dir`, with one brain for each of `works`."""
    run = data_dir / "run"
    run.mkdir(exist_ok=True)
    (run / "token").write_text(TOKEN)
    base = SessionSettings(data_dir=data_dir)
    token = base.token()
    async with PromptExit() as stack:
        agents, environments = FakeAgents(), FakeEnvironments()
        registry = GrpcServer("127.0.0.1:0", token, reflection=False)
        registry.add(add_AgentServiceServicer_to_server, agents)
        registry.add(add_EnvironmentServiceServicer_to_server, environments)
        files, memory_stores = FakeFiles(), FakeMemoryStores()
        registry.add(add_FileServiceServicer_to_server, files)
        registry.add(add_MemoryStoreServiceServicer_to_server, memory_stores)
        await registry.start()
        stack.push_async_callback(registry.stop, 0)
        brains, addresses = [FakeBrain(work) for work in works], []
        for brain in brains:
            server = GrpcServer("127.0.0.1:0", token, reflection=False)
            server.add(brain_service_pb2_grpc.add_BrainServiceServicer_to_server, brain)
            await server.start()
            stack.push_async_callback(server.stop, 0)
            addresses.append(server.address)
        server = await build(
            SessionSettings(
                data_dir=data_dir,
                registry_address=registry.address,
                brain_addresses=tuple(addresses),
                reflection=False,
                **settings,
            ),
            stack,
        )

        async def open_stub():
            channel = open_channel(server.address, token)
            stack.push_async_callback(channel.close, None)
            return SessionServiceStub(channel)

        stub = await open_stub()
        for brain in brains:
            brain.stub = stub
        service = Service(stub, agents, environments, brains, open_stub)
        service.files, service.memory_stores = files, memory_stores
        service.address = server.address
        yield service


async def refusal(call):
    """The `DroverError` that a call is refused with."""
    try:
        await call
    except grpc.RpcError as error:
        return from_rpc_error(error)
    except DroverError as error:
        return error
    msg = "the call was not refused"
    raise AssertionError(msg)


async def until(condition):
    """Returns once a condition holds that nothing announces; fails after the deadline."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event to wait for
            await asyncio.sleep(0.005)
