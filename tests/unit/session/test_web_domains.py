from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_pb2 import SessionAgent
from drover.agent.v1.tool_pb2 import AgentToolConfig, AgentToolset, Tool
from drover.environment.v1.environment_pb2 import EnvironmentConfig
from services.session.domain.web_domains import check_web_domains


def agent(name: str, *domains: str, enabled: bool = True) -> SessionAgent:
    config = AgentToolConfig(name=name, enabled=enabled, allowed_domains=domains)
    return SessionAgent(tools=[Tool(agent_toolset=AgentToolset(configs=[config]))])


def limited(*hosts: str) -> EnvironmentConfig:
    recipe = EnvironmentConfig()
    recipe.cloud.networking.limited.allowed_hosts.extend(hosts)
    recipe.cloud.networking.limited.allow_mcp_servers = True
    recipe.cloud.networking.limited.allow_package_managers = True
    return recipe


@pytest.mark.parametrize(
    ("name", "domain", "hosts"),
    [
        ("web_fetch", "docs.example.com", ["docs.example.com"]),
        ("web_fetch", "docs.example.com", ["*.example.com"]),
        ("web_search", "docs.example.com/guide", ["docs.example.com"]),
    ],
)
def test_domains_within_the_allowed_hosts_are_taken(
    name: str, domain: str, hosts: list[str]
) -> None:
    check_web_domains(agent(name, domain), limited(*hosts))


@pytest.mark.parametrize("name", ["web_fetch", "web_search"])
@pytest.mark.parametrize("hosts", [[], ["other.example"], ["*.docs.example.com"]])
def test_a_domain_outside_the_allowed_hosts_is_refused_by_its_place(
    name: str, hosts: list[str]
) -> None:
    with pytest.raises(DroverError) as refused:
        check_web_domains(agent(name, "docs.example.com"), limited(*hosts))
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    assert refused.value.message.startswith(
        "agent.tools.0.configs.0.allowed_domains.0: docs.example.com is not within"
    )


def test_a_tool_that_is_off_is_not_looked_at() -> None:
    check_web_domains(agent("web_fetch", "docs.example.com", enabled=False), limited())


def test_networking_without_a_limit_has_no_say() -> None:
    unrestricted, self_hosted = EnvironmentConfig(), EnvironmentConfig()
    unrestricted.cloud.networking.unrestricted.SetInParent()
    self_hosted.self_hosted.SetInParent()
    for recipe in (unrestricted, self_hosted):
        check_web_domains(agent("web_fetch", "docs.example.com"), recipe)
