from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_pb2 import SessionAgent
from drover.agent.v1.tool_pb2 import McpServer
from drover.environment.v1.environment_pb2 import EnvironmentConfig
from services.session.domain.networking import check_servers

AGENT = SessionAgent(
    mcp_servers=[
        McpServer(name="files", url="https://mcp.example.com/files"),
        McpServer(name="mail", url="https://MAIL.example.org:8443/mcp"),
    ]
)


def limited(*hosts: str, allow_mcp_servers: bool = False) -> EnvironmentConfig:
    recipe = EnvironmentConfig()
    network = recipe.cloud.networking.limited
    network.allowed_hosts.extend(hosts)
    network.allow_mcp_servers = allow_mcp_servers
    return recipe


@pytest.mark.parametrize(
    "recipe",
    [
        limited("*.example.com", "mail.example.org"),
        limited(allow_mcp_servers=True),
        EnvironmentConfig(),
        EnvironmentConfig(self_hosted={}),
    ],
)
def test_servers_within_the_networking_are_accepted(recipe: EnvironmentConfig) -> None:
    check_servers(AGENT, recipe)


@pytest.mark.parametrize(
    ("recipe", "index", "host"),
    [
        (limited("mcp.example.com"), 1, "mail.example.org"),
        (limited("mail.example.org", "*.mcp.example.com"), 0, "mcp.example.com"),
        (limited(), 0, "mcp.example.com"),
    ],
)
def test_a_server_out_of_reach_is_refused_with_what_would_allow_it(
    recipe: EnvironmentConfig, index: int, host: str
) -> None:
    with pytest.raises(DroverError) as refused:
        check_servers(AGENT, recipe)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    path = f"agent.mcp_servers.{index}.url"
    assert refused.value.message.startswith(f"{path}: {host} is not among the hosts")
    assert "allow_mcp_servers" in refused.value.message


def test_an_address_is_within_no_list_of_names() -> None:
    agent = SessionAgent(mcp_servers=[McpServer(name="a", url="http://127.0.0.1:9000/mcp")])
    check_servers(agent, EnvironmentConfig())
    with pytest.raises(DroverError, match=r"127\.0\.0\.1 is not among the hosts"):
        check_servers(agent, limited("*.example.com"))
