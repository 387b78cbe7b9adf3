"""An agent's life: made at version 1, changed into new versions, archived for good."""

from __future__ import annotations

from datetime import datetime

from catalogue.resources.metadata import merge
from catalogue.resources.presence import given, refuse_null
from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_pb2 import Agent
from drover.agent.v1.agent_service_pb2 import CreateAgentRequest, UpdateAgentRequest
from drover.agent.v1.model_pb2 import ModelConfig
from services.registry.domain.definition import settle_definition


def new_agent(request: CreateAgentRequest, agent_id: str, now: datetime) -> Agent:
    """Version 1 of the agent that `request` describes. Raises INVALID_ARGUMENT."""
    agent = Agent(
        id=agent_id,
        version=1,
        name=request.name,
        description=request.description or None,
        model=request.model,
        system=request.system or None,
        tools=request.tools,
        mcp_servers=request.mcp_servers,
        skills=request.skills,
        multiagent=request.multiagent if request.HasField("multiagent") else None,
        execution_identity=request.execution_identity,
        metadata=request.metadata,
    )
    agent.created_at.FromDatetime(now)
    agent.updated_at.FromDatetime(now)
    settle_definition(agent)
    return agent


def updated_agent(stored: Agent, request: UpdateAgentRequest, now: datetime) -> Agent:
    """The next version of `stored`, or `stored` itself where `request` changes nothing.

    Raises ARCHIVED for an archived agent, VERSION_MISMATCH when the caller saw another version
    (even if nothing would change), INVALID_ARGUMENT for a definition that is not accepted.
    """
    refuse_archived(stored)
    if request.HasField("version") and request.version != stored.version:
        raise DroverError(
            Reason.VERSION_MISMATCH,
            f"version: the agent is at version {stored.version}, not {request.version}",
        )
    named = given(request)
    refuse_null(request, named, "model", "name")
    agent = Agent()
    agent.CopyFrom(stored)
    _replace(agent, request, named)
    if "metadata" in named:
        if not request.HasField("metadata"):
            agent.metadata.clear()
        merge(agent.metadata, request.metadata)
    settle_definition(agent)
    if agent == stored:
        return stored
    agent.version += 1
    agent.updated_at.FromDatetime(now)
    return agent


def refuse_archived(agent: Agent) -> None:
    """Raises ARCHIVED for an agent that may only be read."""
    if agent.HasField("archived_at"):
        raise DroverError(Reason.ARCHIVED, f"agent {agent.id} is archived")


def _replace(agent: Agent, request: UpdateAgentRequest, named: frozenset[str]) -> None:
    """Puts the named fields of `request` in place of the agent's (SEMANTICS §10)."""
    if "name" in named:
        agent.name = request.name
    if "model" in named:
        agent.model.CopyFrom(_replaced_model(agent.model, request.model))
    for text in ("description", "system"):
        if text in named:
            agent.ClearField(text)
            if value := getattr(request, text):  # "" clears too
                setattr(agent, text, value)
    _replace_messages(agent, request, named)


def _replace_messages(agent: Agent, request: UpdateAgentRequest, named: frozenset[str]) -> None:
    for array in ("tools", "mcp_servers", "skills"):
        if array in named:
            agent.ClearField(array)
            getattr(agent, array).extend(getattr(request, array))
    for message in ("multiagent", "execution_identity"):
        if message in named:
            agent.ClearField(message)
            if request.HasField(message):
                getattr(agent, message).CopyFrom(getattr(request, message))


def _replaced_model(stored: ModelConfig, wanted: ModelConfig) -> ModelConfig:
    """The whole object is replaced, but the same model keeps its effort when none is given."""
    model = ModelConfig()
    model.CopyFrom(wanted)
    if not model.HasField("effort") and model.id == stored.id:
        model.effort.CopyFrom(stored.effort)
    return model
