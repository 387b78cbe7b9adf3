"""What a session works with: an agent's copy, with a few fields replaced (SEMANTICS §11)."""

from __future__ import annotations

from typing import Final

from catalogue.resources.presence import given
from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_pb2 import Agent, SessionAgent
from drover.agent.v1.agent_service_pb2 import AgentWithOverrides, ReviseSessionAgentRequest
from services.registry.domain.agent import refuse_archived
from services.registry.domain.definition import settle_definition
from services.registry.domain.web_tools import settle_offer

# Callers of session create and update know the agent under this key.
_PREFIX = "agent."
_ARRAYS: Final = ("tools", "mcp_servers", "skills")


def session_agent(
    base: Agent, overrides: AgentWithOverrides | None = None, *, searchable: bool = False
) -> SessionAgent:
    """The copy of `base` for one session, under `overrides`; id and version stay those of `base`.

    `searchable` says whether the installation has something to search the web with. Raises
    ARCHIVED for an archived agent, INVALID_ARGUMENT for overrides that are not accepted.
    """
    refuse_archived(base)
    agent = SessionAgent(
        id=base.id,
        version=base.version,
        name=base.name,
        description=base.description if base.HasField("description") else None,
        model=base.model,
        system=base.system if base.HasField("system") else None,
        tools=base.tools,
        mcp_servers=base.mcp_servers,
        skills=base.skills,
        multiagent=base.multiagent if base.HasField("multiagent") else None,
        execution_identity=base.execution_identity,
        metadata=base.metadata,
    )
    if overrides is not None:
        _override(agent, overrides)
    settle_definition(agent, _PREFIX)
    settle_offer(agent.tools, searchable=searchable)
    return agent


def revised_session_agent(
    request: ReviseSessionAgentRequest, *, searchable: bool = False
) -> SessionAgent:
    """A session's copy with its tools or MCP servers replaced, as session update does.

    `searchable` as for `session_agent`. Raises INVALID_ARGUMENT for a definition that is not
    accepted.
    """
    agent = SessionAgent()
    agent.CopyFrom(request.agent)
    named = given(request)
    for array in ("tools", "mcp_servers"):
        if array in named:
            agent.ClearField(array)
            getattr(agent, array).extend(getattr(request, array))
    settle_definition(agent, _PREFIX)
    settle_offer(agent.tools, searchable=searchable)
    return agent


def _override(agent: SessionAgent, overrides: AgentWithOverrides) -> None:
    named = given(overrides, "override_mask")
    if "model" in named:
        if not overrides.HasField("model"):
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                f"{_PREFIX}model: cannot be cleared",
                error_code="agent_model_required",
            )
        agent.model.CopyFrom(overrides.model)
        # Neither the override's effort nor the agent's holds for the other model.
        agent.model.ClearField("effort")
    if "system" in named:
        agent.ClearField("system")
        if overrides.system:
            agent.system = overrides.system
    for array in _ARRAYS:
        if array in named:
            agent.ClearField(array)
            getattr(agent, array).extend(getattr(overrides, array))
