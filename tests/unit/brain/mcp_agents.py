"""Agents with MCP servers, and what those answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from drover.agent.v1.agent_pb2 import SessionAgent
from drover.agent.v1.model_pb2 import ModelConfig
from drover.agent.v1.tool_pb2 import (
    PERMISSION_POLICY_TYPE_ALWAYS_ALLOW,
    AgentToolset,
    McpServer,
    McpToolConfig,
    McpToolset,
    PermissionPolicy,
    PermissionPolicyType,
    Tool,
    ToolDefaults,
)
from drover.event.v1.mcp_tool_pb2 import McpTool
from drover.event.v1.session_event_pb2 import McpError, SessionError
from drover.hands.v1.hands_service_pb2 import McpServerOutcome

ALLOW = PERMISSION_POLICY_TYPE_ALWAYS_ALLOW


def toolset(
    server: str,
    *configs: McpToolConfig,
    policy: PermissionPolicyType.ValueType | None = None,
    enabled: bool = True,
) -> Tool:
    defaults = ToolDefaults(enabled=enabled)
    if policy is not None:
        defaults.permission_policy.type = policy
    named = McpToolset(mcp_server_name=server, default_config=defaults, configs=configs)
    return Tool(mcp_toolset=named)


def config(name: str, policy: PermissionPolicyType.ValueType, **more: Any) -> McpToolConfig:
    return McpToolConfig(name=name, permission_policy=PermissionPolicy(type=policy), **more)


def server(name: str, url: str = "") -> McpServer:
    return McpServer(name=name, url=url or f"https://{name}.example.com/mcp")


def agent(*tools: Tool) -> SessionAgent:
    """An agent with the built-in tools and these; each toolset has its server."""
    servers = [server(tool.mcp_toolset.mcp_server_name) for tool in tools if tool.mcp_toolset]
    return SessionAgent(
        id="agent_1",
        version=1,
        name="Worker",
        model=ModelConfig(id="claude-test"),
        tools=[Tool(agent_toolset=AgentToolset()), *tools],
        mcp_servers=[one for one in servers if one.name],
    )


def tool(
    name: str, description: str = "Does it.", schema: Mapping[str, Any] | None = None
) -> McpTool:
    text = json.dumps({"type": "object"} if schema is None else schema)
    return McpTool(name=name, description=description, input_schema=text)


def answer(server: str, *tools: McpTool) -> McpServerOutcome:
    return McpServerOutcome(mcp_server_name=server, tools=tools)


def down(server: str, message: str = "it is down") -> McpServerOutcome:
    about = McpError(mcp_server_name=server)
    error = SessionError(message=message, mcp_connection_failed_error=about)
    return McpServerOutcome(mcp_server_name=server, error=error)
