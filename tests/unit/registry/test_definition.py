from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_pb2 import Agent, ExecutionIdentity, Skill, SkillReference
from drover.agent.v1.multiagent_pb2 import Multiagent
from drover.agent.v1.tool_pb2 import (
    PERMISSION_POLICY_TYPE_AUTO,
    AgentToolConfig,
    McpServer,
    PermissionPolicy,
    Tool,
    ToolDefaults,
)
from services.registry.domain.definition import settle_definition
from tests.unit.registry.definitions import definition, mcp, server, toolset

AUTO = PermissionPolicy(type=PERMISSION_POLICY_TYPE_AUTO)


def refusal(agent: Agent, prefix: str = "") -> str:
    with pytest.raises(DroverError) as refused:
        settle_definition(agent, prefix)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    return refused.value.message


def test_a_server_needs_a_toolset_that_refers_to_it() -> None:
    agent = definition(mcp("a"), servers=(server("a"), server("b")))
    assert refusal(agent) == "mcp_servers.1.name: no mcp_toolset in tools refers to 'b'"


def test_a_toolset_needs_the_server_that_it_refers_to() -> None:
    agent = definition(mcp("a"), mcp("b"), servers=(server("a"),))
    assert refusal(agent) == "tools.1.mcp_server_name: 'b' is not listed in mcp_servers"


def test_servers_have_names_of_their_own() -> None:
    agent = definition(mcp("a"), servers=(server("a"), server("a")))
    assert refusal(agent).startswith("mcp_servers.1.name: 'a' is there twice")


@pytest.mark.parametrize(
    "tools", [(), (toolset(AgentToolConfig(name="read", enabled=False)),)], ids=["none", "no read"]
)
def test_skills_need_the_read_tool(tools: tuple[Tool, ...]) -> None:
    agent = definition(*tools)
    agent.skills.append(Skill(custom=SkillReference(skill_id="skill_1")))
    assert refusal(agent, "agent.") == (
        "agent.tools: read must be enabled while skills are attached"
    )


def test_skills_of_anthropics_are_refused_with_what_to_do() -> None:
    agent = definition(toolset())
    agent.skills.append(Skill(custom=SkillReference(skill_id="skill_1")))
    agent.skills.append(Skill(anthropic=SkillReference(skill_id="xlsx")))
    message = refusal(agent, "agent.")
    assert message.startswith("agent.skills.1.type: this installation has no skills of Anthropic's")
    assert "`drover skills push DIR`" in message


def test_a_skill_is_listed_once() -> None:
    agent = definition(toolset())
    for version in ("latest", "skver_1"):
        agent.skills.append(Skill(custom=SkillReference(skill_id="skill_1", version=version)))
    assert refusal(agent) == "skills.1.skill_id: 'skill_1' is listed already"


def test_more_than_16_pairs_of_metadata_are_refused() -> None:
    agent = definition()
    agent.metadata.update({str(number): "" for number in range(17)})
    assert refusal(agent).startswith("metadata: at most 16 pairs")


def test_the_tool_that_looks_back_is_on_or_not_named() -> None:
    agent = definition()
    agent.metadata["drover.session_history"] = "on"
    settle_definition(agent)
    agent.metadata["drover.session_history"] = "maybe"
    assert refusal(agent, "agent.") == (
        'agent.metadata.drover.session_history: must be "on", or not there'
    )


def unsupported(**fields: object) -> Agent:
    agent = definition(toolset())
    agent.MergeFrom(Agent(**fields))  # type: ignore[arg-type]
    return agent


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (unsupported(multiagent=Multiagent()), "multiagent: not supported"),
        (
            unsupported(execution_identity=ExecutionIdentity(aws_role={"role_arn": "arn"})),
            "execution_identity.type: aws_role is not supported",
        ),
    ],
)
def test_what_does_not_run_yet_is_refused_by_its_path(agent: Agent, message: str) -> None:
    assert refusal(agent) == f"{message} by this release"


def test_a_server_with_its_toolset_is_accepted() -> None:
    agent = definition(mcp("a"), toolset(), servers=(server("a"),))
    settle_definition(agent)
    assert agent.tools[0].mcp_toolset.default_config.enabled


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://user@mcp.example.com/", "must be a bare host, without user information"),
        ("https://mcp.example.com/#tools", "must be an http or https URL, without a fragment"),
        ("https://mcp.example.com:0/", "must have a port from 1 to 65535"),
        ("https://0x7f.1/mcp", "must be a host name, or an IP address in its standard form"),
        ("https:///mcp", "must be an http or https URL, without a fragment"),
    ],
)
def test_a_servers_url_is_one_that_everybody_reads_alike(url: str, message: str) -> None:
    agent = definition(mcp("a"), servers=(McpServer(name="a", url=url),))
    assert refusal(agent, "agent.") == f"agent.mcp_servers.0.url: {message}"


def test_the_policy_auto_is_kept_as_it_is_given() -> None:
    agent = definition(
        toolset(AgentToolConfig(name="bash"), defaults=ToolDefaults(permission_policy=AUTO))
    )
    settle_definition(agent)
    settled = agent.tools[0].agent_toolset
    assert settled.default_config.permission_policy == AUTO
    assert settled.configs[0].permission_policy == AUTO
