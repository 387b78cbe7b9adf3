"""Short ways to write definitions in tests."""

from __future__ import annotations

from drover.agent.v1.agent_pb2 import Agent
from drover.agent.v1.model_pb2 import ModelConfig
from drover.agent.v1.tool_pb2 import (
    AgentToolConfig,
    AgentToolset,
    CustomTool,
    McpServer,
    McpToolset,
    Tool,
    ToolDefaults,
)

SCHEMA = '{"type": "object"}'


def toolset(*configs: AgentToolConfig, defaults: ToolDefaults | None = None) -> Tool:
    return Tool(agent_toolset=AgentToolset(configs=configs, default_config=defaults))


def custom(name: str, schema: str = SCHEMA) -> Tool:
    return Tool(custom=CustomTool(name=name, description="does it", input_schema=schema))


def mcp(server: str) -> Tool:
    return Tool(mcp_toolset=McpToolset(mcp_server_name=server))


def server(name: str) -> McpServer:
    return McpServer(name=name, url="https://mcp.example.com")


def definition(*tools: Tool, servers: tuple[McpServer, ...] = ()) -> Agent:
    return Agent(
        id="agent_1",
        version=1,
        name="Ada",
        model=ModelConfig(id="m"),
        tools=tools,
        mcp_servers=servers,
    )
