"""What the contract describes and this release does not run yet.

Such definitions are refused when they are saved, with the path of what is not supported: nothing
is accepted and then ignored. When a part starts to run, its lines here go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from drover.agent.v1.agent_pb2 import Agent, SessionAgent


def refuse_unsupported_agent(agent: Agent | SessionAgent, prefix: str) -> None:
    """Raises INVALID_ARGUMENT for a settled definition that asks for what does not run yet."""
    if agent.HasField("multiagent"):
        _refuse(f"{prefix}multiagent")
    if agent.execution_identity.HasField("aws_role"):
        _refuse(f"{prefix}execution_identity.type", "aws_role")


def _refuse(path: str, value: str = "") -> Never:
    what = f"{value} is not supported" if value else "not supported"
    raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {what} by this release")
