"""The registry: what a session refers to, copied when it is created."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.agent.v1 import agent_service_pb2
from drover.agent.v1.agent_service_pb2_grpc import AgentServiceStub
from drover.environment.v1 import environment_service_pb2
from drover.environment.v1.environment_service_pb2_grpc import EnvironmentServiceStub

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import TypeVar

    from drover.agent.v1 import agent_pb2
    from drover.environment.v1 import environment_pb2
    from drover.session.v1 import session_service_pb2

    T = TypeVar("T")

_DEADLINE: Final = 10.0


class Registry:
    """Agents and environments over gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._agents = AgentServiceStub(channel)
        self._environments = EnvironmentServiceStub(channel)

    async def resolve(
        self, selection: agent_service_pb2.AgentSelection, environment_id: str
    ) -> tuple[agent_pb2.SessionAgent, environment_pb2.Environment]:
        """The agent as the session works with it, and its environment, asked for at once.

        Raises what the registry says of them, the agent's refusal first.
        """
        agent, environment = await asyncio.gather(
            _answer(
                self._agents.ResolveAgent(
                    agent_service_pb2.ResolveAgentRequest(selection=selection), timeout=_DEADLINE
                )
            ),
            _answer(self._environment(environment_id)),
            return_exceptions=True,
        )
        if isinstance(agent, BaseException):
            raise agent
        if isinstance(environment, BaseException):
            raise environment
        return agent.agent, environment.environment

    async def environment(self, environment_id: str) -> environment_pb2.Environment:
        """The environment. Raises what the registry says of it."""
        answer = await _answer(self._environment(environment_id))
        return answer.environment

    def _environment(
        self, environment_id: str
    ) -> Awaitable[environment_service_pb2.GetEnvironmentResponse]:
        request = environment_service_pb2.GetEnvironmentRequest(environment_id=environment_id)
        return self._environments.GetEnvironment(request, timeout=_DEADLINE)

    async def revise(
        self, agent: agent_pb2.SessionAgent, change: session_service_pb2.SessionAgentUpdate
    ) -> agent_pb2.SessionAgent:
        """A session's agent with other tools, by the rules of definitions."""
        request = agent_service_pb2.ReviseSessionAgentRequest(
            agent=agent, tools=change.tools, mcp_servers=change.mcp_servers
        )
        if change.HasField("update_mask"):
            request.update_mask.CopyFrom(change.update_mask)
        answer = await _answer(self._agents.ReviseSessionAgent(request, timeout=_DEADLINE))
        return answer.agent


async def _answer(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.RpcError as error:
        raise from_rpc_error(error, "the registry service") from error


def refuse_archived(environment: environment_pb2.Environment) -> None:
    """Raises ARCHIVED for an environment that takes no new sessions."""
    if environment.HasField("archived_at"):
        raise DroverError(
            Reason.ARCHIVED,
            f"environment_id: {environment.id} is archived",
            error_code="environment_archived",
        )
