"""The services behind the gateway, in memory: they record what they are asked and answer it.

They are real gRPC servers with the chassis' own interceptors, so that rules, errors and identity
are those of production; only what lies behind the wire is made up.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from chassis.context import REPLAYED_KEY
from chassis.errors import DroverError, Reason
from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.agent.v1 import agent_pb2, agent_service_pb2, agent_service_pb2_grpc
from drover.environment.v1 import (
    environment_key_service_pb2_grpc,
    environment_service_pb2,
    environment_service_pb2_grpc,
)
from drover.event.v1 import event_pb2
from drover.file.v1 import file_service_pb2_grpc
from drover.key.v1 import api_key_service_pb2_grpc
from drover.session.v1 import (
    preview_pb2,
    session_pb2,
    session_service_pb2,
    session_service_pb2_grpc,
)
from drover.session.v1.operations_service_pb2_grpc import add_OperationsServiceServicer_to_server
from drover.skill.v1 import skill_service_pb2_grpc, skill_version_service_pb2_grpc
from drover.work.v1 import work_service_pb2_grpc
from identity.about import tell
from tests.doubles.asked import Asked, stamp
from tests.doubles.platform_files import Files, Skills, SkillVersions
from tests.doubles.platform_keys import StoredApiKeys
from tests.doubles.platform_operations import Operations
from tests.doubles.platform_plain import Plain
from tests.doubles.platform_workers import EnvironmentKeys, Works
from tests.doubles.ports import free_port
from tests.doubles.standing import PromptExit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

TOKEN = Secret("the-installation")
POSITION = "x-drover-last-event-id"
PROCESSES = ("session", "registry", "hands", "vault_proxy", "brain-1", "brain-2")


def agent(**fields: Any) -> agent_pb2.Agent:
    given = {"id": "agent_1", "version": 1, "name": "clerk", "model": {"id": "m"}} | fields
    made = agent_pb2.Agent(created_at=stamp(), updated_at=stamp(), **given)
    settle(made)
    return made


def settle(made: Any) -> None:
    """Fills in what the registry resolves, which the official client insists on."""
    made.execution_identity.service_account.SetInParent()
    made.model.speed, made.model.effort.type = 1, 3
    for tool in made.tools:
        if tool.HasField("agent_toolset"):
            tool.agent_toolset.default_config.enabled = True
            tool.agent_toolset.default_config.permission_policy.type = 1


def session(**fields: Any) -> session_pb2.Session:
    given: dict[str, Any] = {"id": "sesn_1", "environment_id": "env_1", "status": 1} | fields
    made = session_pb2.Session(created_at=stamp(), updated_at=stamp(), **given)
    made.agent.id, made.agent.name, made.agent.version = "agent_1", "clerk", 1
    made.agent.model.id = "m"
    settle(made.agent)
    made.stats.SetInParent()
    made.usage.SetInParent()
    return made


def message(event_id: str, text: str, seq: int = 0) -> event_pb2.Event:
    event = event_pb2.Event(id=event_id, seq=seq)
    event.user_message.content.add().text.text = text
    if seq:
        event.processed_at.CopyFrom(stamp(nanos=seq * 1_000))
    return event


class Agents(Asked, agent_service_pb2_grpc.AgentServiceServicer):
    async def CreateAgent(self, request, context):
        self.note(request)
        made = agent(name=request.name)
        made.model.CopyFrom(request.model)
        made.tools.extend(request.tools)
        made.metadata.update(request.metadata)
        settle(made)
        return agent_service_pb2.CreateAgentResponse(agent=made)

    async def GetAgent(self, request, context):
        self.note(request)
        return agent_service_pb2.GetAgentResponse(agent=agent(id=request.agent_id))

    async def UpdateAgent(self, request, context):
        self.note(request)
        return agent_service_pb2.UpdateAgentResponse(agent=agent(id=request.agent_id))

    async def ListAgents(self, request, context):
        self.note(request)
        return agent_service_pb2.ListAgentsResponse(data=[agent()])

    async def ArchiveAgent(self, request, context):
        self.note(request)
        return agent_service_pb2.ArchiveAgentResponse(
            agent=agent(id=request.agent_id, archived_at=stamp())
        )

    async def ListAgentVersions(self, request, context):
        self.note(request)
        return agent_service_pb2.ListAgentVersionsResponse(data=[agent()])


class Environments(Asked, environment_service_pb2_grpc.EnvironmentServiceServicer):
    def _made(self, **fields: Any) -> Any:
        made = environment_service_pb2.CreateEnvironmentResponse().environment
        made.id, made.name = fields.get("id", "env_1"), fields.get("name", "plain")
        made.config.cloud.networking.unrestricted.SetInParent()
        made.config.cloud.packages.SetInParent()
        made.created_at.CopyFrom(stamp())
        made.updated_at.CopyFrom(stamp())
        return made

    async def CreateEnvironment(self, request, context):
        self.note(request)
        made = self._made(name=request.name)
        return environment_service_pb2.CreateEnvironmentResponse(environment=made)

    async def GetEnvironment(self, request, context):
        self.note(request)
        made = self._made(id=request.environment_id)
        return environment_service_pb2.GetEnvironmentResponse(environment=made)

    async def UpdateEnvironment(self, request, context):
        self.note(request)
        return environment_service_pb2.UpdateEnvironmentResponse(environment=self._made())

    async def ListEnvironments(self, request, context):
        self.note(request)
        return environment_service_pb2.ListEnvironmentsResponse(data=[self._made()])

    async def DeleteEnvironment(self, request, context):
        self.note(request)
        return environment_service_pb2.DeleteEnvironmentResponse(id=request.environment_id)

    async def ArchiveEnvironment(self, request, context):
        self.note(request)
        return environment_service_pb2.ArchiveEnvironmentResponse(environment=self._made())


class Sessions(Asked, session_service_pb2_grpc.SessionServiceServicer):
    """One session's log, and the streams that follow it. All are of one environment.

    `end` ends the streams that are open: with an error, or properly for `None`. `lent` is what
    sessions have beside what all have, by their ids.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[event_pb2.Event] = []
        self.lent: dict[str, session_pb2.Session] = {}
        self.marks_position = True
        self.replays = False
        self.opened = 0
        self.cancelled = 0
        self._feeds: set[asyncio.Queue[Any]] = set()
        self._changed = asyncio.Condition()

    async def until(self, holds: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits until something holds of what the streams have seen."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(holds)

    async def publish(self, *frames: event_pb2.Event | preview_pb2.Preview) -> None:
        for frame in frames:
            if isinstance(frame, event_pb2.Event) and frame.seq:
                self.log.append(frame)
            for feed in self._feeds:
                feed.put_nowait(frame)

    async def end(self, error: DroverError | None = None) -> None:
        for feed in self._feeds:
            feed.put_nowait(error)

    async def CreateSession(self, request, context):
        self.note(request)
        if self.replays:
            context.set_trailing_metadata(((REPLAYED_KEY, "true"),))
        return session_service_pb2.CreateSessionResponse(session=session())

    async def GetSession(self, request, context):
        self.note(request)
        made = session(id=request.session_id)
        if (lent := self.lent.get(request.session_id)) is not None:
            made.MergeFrom(lent)
        return session_service_pb2.GetSessionResponse(session=made)

    async def UpdateSession(self, request, context):
        self.note(request)
        return session_service_pb2.UpdateSessionResponse(session=session(id=request.session_id))

    async def ListSessions(self, request, context):
        self.note(request)
        return session_service_pb2.ListSessionsResponse(data=[session()])

    async def DeleteSession(self, request, context):
        self.note(request)
        return session_service_pb2.DeleteSessionResponse(id=request.session_id)

    async def ArchiveSession(self, request, context):
        self.note(request)
        made = session(id=request.session_id, status=4, archived_at=stamp())
        return session_service_pb2.ArchiveSessionResponse(session=made)

    async def ForkSession(self, request, context):
        self.note(request)
        return session_service_pb2.ForkSessionResponse(session=session(id="sesn_fork"))

    async def GetEvents(self, request, context):
        self.note(request)
        return session_service_pb2.GetEventsResponse(data=self.log)

    async def EmitEvents(self, request, context):
        self.note(request)
        stored = []
        for number, event in enumerate(request.events):
            copy = event_pb2.Event()
            copy.CopyFrom(event)
            copy.id = f"sevt_new{number}"
            stored.append(copy)
        return session_service_pb2.EmitEventsResponse(data=stored)

    async def GetThread(self, request, context):
        self.note(request)
        return session_service_pb2.GetThreadResponse(thread=self._thread(request.thread_id))

    async def ListThreads(self, request, context):
        self.note(request)
        return session_service_pb2.ListThreadsResponse(data=[self._thread("sthr_1")])

    async def GetThreadEvents(self, request, context):
        self.note(request)
        return session_service_pb2.GetThreadEventsResponse(data=self.log)

    async def StreamEvents(self, request, context):
        async for frame in self._follow(request, context):
            yield session_service_pb2.StreamEventsResponse(frames=[frame])

    async def StreamThreadEvents(self, request, context):
        async for frame in self._follow(request, context):
            yield session_service_pb2.StreamThreadEventsResponse(frames=[frame])

    @staticmethod
    def _thread(thread_id: str) -> Any:
        made = session_pb2.Thread(id=thread_id, session_id="sesn_1", status=1)
        made.agent.id, made.agent.name, made.agent.version = "agent_1", "clerk", 1
        made.agent.model.id = "m"
        settle(made.agent)
        made.created_at.CopyFrom(stamp())
        made.updated_at.CopyFrom(stamp())
        return made

    async def _follow(self, request, context):
        self.note(request)
        if request.HasField("after_event_id"):
            ids = ["", *(event.id for event in self.log)]
            if request.after_event_id not in ids:
                raise DroverError(Reason.INVALID_ARGUMENT, "after: there is no such event")
            missed = self.log[ids.index(request.after_event_id) :]
        else:
            missed = []
        feed: asyncio.Queue[Any] = asyncio.Queue()
        self._feeds.add(feed)
        try:
            position = self.log[-1].id if self.log else ""
            marks = ((POSITION, position),) if self.marks_position else ()
            # Noted before it is told: who has the answer may look at once, or stop the service.
            await self._note_stream("opened")
            await context.send_initial_metadata(marks)
            for event in missed:
                yield {"event": event}
            while (frame := await feed.get()) is not None:
                if isinstance(frame, DroverError):
                    raise frame
                yield {"event" if isinstance(frame, event_pb2.Event) else "preview": frame}
        except (asyncio.CancelledError, GeneratorExit):
            await self._note_stream("cancelled")
            raise
        finally:
            self._feeds.discard(feed)

    async def _note_stream(self, what: str) -> None:
        setattr(self, what, getattr(self, what) + 1)  # at once, also for who does not wait
        async with self._changed:
            self._changed.notify_all()


class Platform:
    """All services of a stack, each on an address that it keeps over a restart."""

    def __init__(self) -> None:
        self.agents = Agents()
        self.environments = Environments()
        self.environment_keys = EnvironmentKeys()
        self.api_keys = StoredApiKeys()
        self.sessions = Sessions()
        self.works = Works()
        self.operations = Operations()
        self.files = Files()
        self.skills = Skills()
        self.skill_versions = SkillVersions()
        self.plain = Plain()
        self.addresses: dict[str, str] = {}
        self._servers: dict[str, GrpcServer] = {}

    async def start(self, process: str) -> None:
        # Nobody's outgoing connection may take the port while the process is stopped.
        address = self.addresses.get(process) or f"127.0.0.1:{free_port()}"
        server = GrpcServer(address, TOKEN)
        if process == "registry":
            server.add(agent_service_pb2_grpc.add_AgentServiceServicer_to_server, self.agents)
            server.add(
                environment_service_pb2_grpc.add_EnvironmentServiceServicer_to_server,
                self.environments,
            )
            server.add(
                environment_key_service_pb2_grpc.add_EnvironmentKeyServiceServicer_to_server,
                self.environment_keys,
            )
            server.add(api_key_service_pb2_grpc.add_ApiKeyServiceServicer_to_server, self.api_keys)
            server.add(file_service_pb2_grpc.add_FileServiceServicer_to_server, self.files)
            server.add(skill_service_pb2_grpc.add_SkillServiceServicer_to_server, self.skills)
            server.add(
                skill_version_service_pb2_grpc.add_SkillVersionServiceServicer_to_server,
                self.skill_versions,
            )
        elif process == "session":
            server.add(session_service_pb2_grpc.add_SessionServiceServicer_to_server, self.sessions)
            server.add(work_service_pb2_grpc.add_WorkServiceServicer_to_server, self.works)
            server.add(add_OperationsServiceServicer_to_server, self.operations)
        self.plain.add_to(server, process)
        tell(server, process)
        await server.start()
        self._servers[process] = server
        self.addresses[process] = server.address

    async def stop(self, process: str) -> None:
        """As a kill: nothing is let finish."""
        await self._servers.pop(process).stop(0)

    async def close(self) -> None:
        for process in list(self._servers):
            await self.stop(process)


@asynccontextmanager
async def running_platform() -> AsyncIterator[Platform]:
    async with PromptExit() as stack:
        platform = Platform()
        stack.push_async_callback(platform.close)
        for process in PROCESSES:
            await platform.start(process)
        yield platform
