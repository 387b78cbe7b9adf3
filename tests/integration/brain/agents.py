"""Pieces of agents and of failures that several suites use."""

from __future__ import annotations

from drover.agent.v1.tool_pb2 import (
    PERMISSION_POLICY_TYPE_ALWAYS_ASK,
    PERMISSION_POLICY_TYPE_AUTO,
    AgentToolConfig,
    AgentToolset,
    CustomTool,
    PermissionPolicy,
    PermissionPolicyType,
    Tool,
)
from services.brain.model.port import ModelError, ModelErrorKind


def custom_tool(name: str) -> Tool:
    schema = '{"type": "object",  "properties": {}}'
    return Tool(custom=CustomTool(name=name, description="Asks.", input_schema=schema))


def ask_for(*names: str) -> Tool:
    return _under(PERMISSION_POLICY_TYPE_ALWAYS_ASK, names)


def judge_for(*names: str) -> Tool:
    return _under(PERMISSION_POLICY_TYPE_AUTO, names)


def _under(kind: PermissionPolicyType.ValueType, names: tuple[str, ...]) -> Tool:
    policy = PermissionPolicy(type=kind)
    configs = [AgentToolConfig(name=name, permission_policy=policy) for name in names]
    return Tool(agent_toolset=AgentToolset(configs=configs))


def overloaded(*, retry_after: float | None = None) -> ModelError:
    return ModelError(
        ModelErrorKind.OVERLOADED,
        "Overloaded",
        status=529,
        retry_after=retry_after,
        retryable=True,
    )
