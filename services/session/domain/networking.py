"""Whether what an agent is to reach is within its environment's networking (SEMANTICS §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from catalogue.host_list import HostList
from catalogue.hosts import HostError, parse_url
from services.session.domain.admission import refuse

if TYPE_CHECKING:
    from drover.agent.v1 import agent_pb2
    from drover.environment.v1 import environment_pb2

_REMEDY: Final = "list it in the environment's allowed_hosts, or set allow_mcp_servers there"


def check_servers(agent: agent_pb2.SessionAgent, recipe: environment_pb2.EnvironmentConfig) -> None:
    """Raises INVALID_ARGUMENT for an MCP server that a limited environment keeps out of reach."""
    if not recipe.cloud.networking.HasField("limited"):
        return
    limited = recipe.cloud.networking.limited
    if limited.allow_mcp_servers:
        return
    hosts = HostList(limited.allowed_hosts)
    for index, server in enumerate(agent.mcp_servers):
        try:
            host = parse_url(server.url).host
        except HostError as error:
            raise refuse(f"agent.mcp_servers.{index}.url", str(error)) from error
        if host not in hosts:
            raise refuse(
                f"agent.mcp_servers.{index}.url",
                f"{host} is not among the hosts that the session's environment allows: {_REMEDY}",
            )
