"""What a session's MCP servers offer, as far as its log tells of it.

A tool is pinned as the session first saw it. What a server says of it later counts as another tool,
which a person has to allow once, whatever the agent's policy says: its description is a text that
the model obeys, and whoever allowed the tool has not read the new one (ADR 23).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.brain.domain import policy
from services.brain.domain.policy import Permission, Remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drover.agent.v1.agent_pb2 import SessionAgent
    from drover.agent.v1.tool_pb2 import McpToolset
    from drover.event.v1.mcp_tool_pb2 import McpListing, McpTool


@dataclass(slots=True)
class Server:
    """One server at one address. `pinned` are the digests of its tools as they may be called."""

    url: str
    tools: list[McpTool] = field(default_factory=list)
    unreachable: bool = False
    # It has told of its tools before: what it adds from now on is a change.
    known: bool = False
    pinned: dict[str, str] = field(default_factory=dict)

    def tool(self, name: str) -> McpTool | None:
        """The tool of that name, if the server has it."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(slots=True)
class Servers:
    """All of a session's servers, by name. Written only by the projection."""

    # They have been asked since the session last began to run.
    asked: bool = False
    by_name: dict[str, Server] = field(default_factory=dict)
    # The names by which the model knows tools, by server and the server's own name.
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(self, listing: McpListing) -> None:
        """The servers were asked, and `listing` is what was new."""
        self.asked = True
        for found in listing.servers:
            server = self.by_name.get(found.mcp_server_name)
            if server is None or server.url != found.url:
                server = self.by_name[found.mcp_server_name] = Server(found.url)
            server.unreachable = found.unreachable
            if found.unreachable:
                continue
            server.tools = list(found.tools)
            for tool in found.tools:
                if tool.offered_name:
                    self.names[found.mcp_server_name, tool.name] = tool.offered_name
            if not server.known:
                server.known = True
                server.pinned = {tool.name: tool.digest for tool in found.tools}

    def allowed(self, server_name: str, tool_name: str) -> bool:
        """A person has allowed a call: the tool is known as it is. Whether that was news."""
        server = self.by_name.get(server_name)
        tool = server.tool(tool_name) if server is not None else None
        if server is None or tool is None or server.pinned.get(tool_name) == tool.digest:
            return False
        server.pinned[tool_name] = tool.digest
        return True

    def unreachable(self, server_name: str) -> bool:
        """Whether the server could not be asked when the session last began to run."""
        server = self.by_name.get(server_name)
        return server is not None and server.unreachable

    def offered(self, agent: SessionAgent) -> Iterator[McpTool]:
        """The tools that the model is told of."""
        for server, toolset in self._present(agent):
            for tool in server.tools:
                if tool.offered_name and enabled(toolset, tool.name):
                    yield tool

    def permissions(self, agent: SessionAgent) -> tuple[dict[str, Permission], dict[str, Remote]]:
        """Of each tool that was offered once, by the name that the model knows it by."""
        present = {one[1].mcp_server_name: one for one in self._present(agent)}
        by_name: dict[str, Permission] = {}
        remote: dict[str, Remote] = {}
        for (server_name, tool_name), name in self.names.items():
            remote[name] = Remote(server_name, tool_name)
            by_name[name] = (
                _permission(*present[server_name], tool_name)
                if server_name in present
                else Permission.DISABLED
            )
        return by_name, remote

    def _present(self, agent: SessionAgent) -> Iterator[tuple[Server, McpToolset]]:
        """Servers that answered where the agent has them now, and what it says of their tools."""
        for name, url, toolset in toolsets(agent):
            server = self.by_name.get(name)
            if server is not None and server.url == url and not server.unreachable:
                yield server, toolset


def due(agent: SessionAgent, servers: Servers) -> bool:
    """Whether the servers have to be asked before the model is."""
    return bool(agent.mcp_servers) and not servers.asked


def toolsets(agent: SessionAgent) -> Iterable[tuple[str, str, McpToolset]]:
    """The agent's servers by name, with their addresses and what it says of their tools."""
    by_server = {
        tool.mcp_toolset.mcp_server_name: tool.mcp_toolset
        for tool in agent.tools
        if tool.HasField("mcp_toolset")
    }
    for server in agent.mcp_servers:
        if (toolset := by_server.get(server.name)) is not None:
            yield server.name, server.url, toolset


def enabled(toolset: McpToolset, tool_name: str) -> bool:
    """Whether a tool is offered at all."""
    for config in toolset.configs:
        if config.name == tool_name and config.HasField("enabled"):
            return config.enabled
    defaults = toolset.default_config
    return defaults.enabled if defaults.HasField("enabled") else True


def named(toolset: McpToolset, tool_name: str) -> bool:
    """Whether the agent speaks of the tool by its name."""
    return any(config.name == tool_name for config in toolset.configs)


def is_strange(toolset: McpToolset, server: Server, tool: McpTool) -> bool:
    """Whether the tool is not as it was, or new and nobody has spoken of it."""
    pinned = server.pinned.get(tool.name)
    if pinned is None:
        return not named(toolset, tool.name)
    return pinned != tool.digest


def _permission(server: Server, toolset: McpToolset, tool_name: str) -> Permission:
    tool = server.tool(tool_name)
    if tool is None or not tool.offered_name or not enabled(toolset, tool_name):
        return Permission.DISABLED
    if is_strange(toolset, server, tool):
        return Permission.ASK
    default = policy.of_policy(toolset.default_config.permission_policy, Permission.ASK)
    for config in toolset.configs:
        if config.name == tool_name:
            return policy.of_policy(config.permission_policy, default)
    return default
