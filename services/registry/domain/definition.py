"""A whole agent definition: defaults resolved on save, and the rules that join its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Never

from catalogue.resources.metadata import refuse_overflow
from chassis.errors import DroverError, Reason
from drover.agent.v1.model_pb2 import (
    EFFORT_LEVEL_HIGH,
    MODEL_SPEED_STANDARD,
    MODEL_SPEED_UNSPECIFIED,
    ModelConfig,
)
from services.registry.domain.release import refuse_unsupported_agent
from services.registry.domain.servers import check_servers
from services.registry.domain.skills.pinning import check_skills
from services.registry.domain.tools import offers, settle_tools

if TYPE_CHECKING:
    from drover.agent.v1.agent_pb2 import Agent, SessionAgent


_HISTORY: Final = "drover.session_history"
"""Key of an agent's metadata that offers it the tool of that name from the start."""


def settle_definition(agent: Agent | SessionAgent, prefix: str = "") -> None:
    """Resolves the defaults of `agent` in place (SEMANTICS §10) and checks all that it says.

    `prefix` stands before the paths of error messages, its dot included. Limits of single fields
    are the contract's and are checked before. Raises INVALID_ARGUMENT for the first rule broken.
    """
    settle_model(agent.model)
    if not agent.execution_identity.WhichOneof("identity"):
        agent.execution_identity.service_account.SetInParent()
    settle_tools(agent.tools, f"{prefix}tools")
    check_servers(agent, prefix)
    check_skills(agent.skills, f"{prefix}skills")
    if agent.skills and not offers(agent.tools, "read"):
        _refuse(f"{prefix}tools", "read must be enabled while skills are attached")
    refuse_overflow(agent.metadata)
    if agent.metadata.get(_HISTORY, "on") != "on":
        _refuse(f"{prefix}metadata.{_HISTORY}", 'must be "on", or not there')
    refuse_unsupported_agent(agent, prefix)


def settle_model(model: ModelConfig) -> None:
    """Resolves effort to high and speed to standard where they are not given."""
    if not model.HasField("effort"):
        model.effort.type = EFFORT_LEVEL_HIGH
    if model.speed == MODEL_SPEED_UNSPECIFIED:
        model.speed = MODEL_SPEED_STANDARD


def _refuse(path: str, text: str) -> Never:
    raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {text}")
