"""A registry that knows one agent and one environment, and counts what it is asked."""

from __future__ import annotations

from chassis.errors import DroverError, Reason
from drover.agent.v1 import agent_pb2, agent_service_pb2, agent_service_pb2_grpc
from drover.environment.v1 import (
    environment_pb2,
    environment_service_pb2,
    environment_service_pb2_grpc,
)

AGENT_ID = "agent_1"
ENVIRONMENT_ID = "env_1"


class FakeAgents(agent_service_pb2_grpc.AgentServiceServicer):
    def __init__(self):
        self.agent = agent_pb2.SessionAgent(
            id=AGENT_ID, version=3, name="Dolly", metadata={"drover.harness": "plain"}
        )
        self.agent.model.id = "model-1"

    async def ResolveAgent(self, request, _context):
        selection = request.selection
        named = getattr(selection, selection.WhichOneof("selection"))
        if named.id != AGENT_ID:
            raise DroverError(Reason.NOT_FOUND, f"agent: {named.id} not found")
        return agent_service_pb2.ResolveAgentResponse(agent=self.agent)

    async def ReviseSessionAgent(self, request, _context):
        agent = agent_pb2.SessionAgent()
        agent.CopyFrom(request.agent)
        del agent.tools[:]
        agent.tools.extend(request.tools)
        return agent_service_pb2.ReviseSessionAgentResponse(agent=agent)


class FakeEnvironments(environment_service_pb2_grpc.EnvironmentServiceServicer):
    def __init__(self):
        self.environment = environment_pb2.Environment(id=ENVIRONMENT_ID, name="box")
        self.environment.config.cloud.networking.unrestricted.SetInParent()

    async def GetEnvironment(self, request, _context):
        if request.environment_id != ENVIRONMENT_ID:
            raise DroverError(
                Reason.ENVIRONMENT_NOT_FOUND, f"environment_id: {request.environment_id} not found"
            )
        return environment_service_pb2.GetEnvironmentResponse(environment=self.environment)
