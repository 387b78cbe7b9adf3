"""An agent's MCP servers (SEMANTICS §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from catalogue.hosts import HostError, parse_url
from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from drover.agent.v1.agent_pb2 import Agent, SessionAgent


def check_servers(agent: Agent | SessionAgent, prefix: str) -> None:
    """Checks each server, and that it has its one toolset as every toolset has its server.

    That a server answers is not checked: it is asked when a session begins to run. Raises
    INVALID_ARGUMENT.
    """
    toolsets = {
        tool.mcp_toolset.mcp_server_name: index
        for index, tool in enumerate(agent.tools)
        if tool.HasField("mcp_toolset")
    }
    servers: set[str] = set()
    for index, server in enumerate(agent.mcp_servers):
        here = f"{prefix}mcp_servers.{index}"
        if server.name in servers:
            _refuse(f"{here}.name", f"{server.name!r} is there twice")
        if server.name not in toolsets:
            _refuse(f"{here}.name", f"no mcp_toolset in tools refers to {server.name!r}")
        _check_url(server.url, f"{here}.url")
        servers.add(server.name)
    for name, index in toolsets.items():
        if name not in servers:
            _refuse(
                f"{prefix}tools.{index}.mcp_server_name", f"{name!r} is not listed in mcp_servers"
            )


def _check_url(url: str, path: str) -> None:
    try:
        parse_url(url)
    except HostError as error:
        _refuse(path, str(error))


def _refuse(path: str, text: str) -> Never:
    raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {text}")
