"""A stack whose sessions may reach a real MCP server and a web site on this machine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anthropic import Anthropic

from tests.doubles.mcp_server import McpServer, running_mcp_server
from tests.doubles.tcp_proxy import TcpProxy
from tests.doubles.web_site import WebSite, running_web_site
from tests.e2e.driving import MODEL, TOOLSET
from tests.e2e.stack import Stack, running_stack
from tests.e2e.web_stack import searching

ALLOW: dict[str, Any] = {"permission_policy": {"type": "always_allow"}}


@dataclass(frozen=True, slots=True)
class McpStack:
    """The stack, the server, a way to the server that can be cut, and the site."""

    stack: Stack
    server: McpServer
    line: TcpProxy
    site: WebSite

    @property
    def url(self) -> str:
        """The server, over the line that can be cut."""
        return f"http://127.0.0.1:{self.line.port}/mcp"

    def reset(self) -> None:
        """Has everything as it was at first."""
        self.stack.wait_ready()
        self.stack.model.reset()
        self.server.offer(descriptions={}, more=0)
        self.server.forget()
        self.line.admit()
        self.site.forget()

    def offered(self, number: int = -1) -> list[str]:
        """The names of the tools that the model was told of."""
        return [tool["name"] for tool in self.stack.model.requests[number].body["tools"]]

    def session(self, client: Anthropic, *servers: dict[str, Any], **more: Any) -> Any:
        """A session of an agent with these servers; see `server` and `with_server`."""
        agent = client.beta.agents.create(
            name="clerk",
            model=MODEL,
            tools=[TOOLSET, *(server["toolset"] for server in servers)],
            mcp_servers=[server["server"] for server in servers],
        )
        environment = client.beta.environments.create(name=f"desk-{uuid.uuid4().hex}")
        return client.beta.sessions.create(agent=agent.id, environment_id=environment.id, **more)


def served(name: str, url: str, config: Mapping[str, Any] = ALLOW, *configs: Any) -> dict[str, Any]:
    """A server with its toolset, as an agent has them."""
    return {
        "server": {"type": "url", "name": name, "url": url},
        "toolset": {
            "type": "mcp_toolset",
            "mcp_server_name": name,
            "default_config": dict(config),
            "configs": list(configs),
        },
    }


@contextmanager
def mcp_stack(data: Path, **environment: str) -> Iterator[McpStack]:
    """Runs server and site first, so that the stack can be told of their ports."""
    with (
        running_mcp_server() as server,
        TcpProxy(server.port) as line,
        running_web_site() as site,
    ):
        ports = (server.port, server.faults_port, line.port)
        with running_stack(data, **searching(site, *ports), **environment) as stack:
            yield McpStack(stack, server, line, site)
