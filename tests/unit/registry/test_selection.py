from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_pb2 import Agent, SessionAgent, Skill, SkillReference
from drover.agent.v1.agent_service_pb2 import (
    AgentWithOverrides,
    CreateAgentRequest,
    ReviseSessionAgentRequest,
)
from drover.agent.v1.model_pb2 import EFFORT_LEVEL_HIGH, EFFORT_LEVEL_LOW, Effort, ModelConfig
from services.registry.domain.agent import new_agent
from services.registry.domain.selection import revised_session_agent, session_agent
from tests.unit.registry.definitions import custom, mcp, server, toolset

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
LOW = Effort(type=EFFORT_LEVEL_LOW)


@pytest.fixture
def base() -> Agent:
    request = CreateAgentRequest(
        name="Ada",
        model=ModelConfig(id="m", effort=LOW),
        system="be brief",
        tools=[toolset(), custom("a")],
        metadata={"drover.harness": "plain"},
    )
    agent = new_agent(request, "agent_1", NOON)
    agent.version = 3
    return agent


def override(base: Agent, *named: str, **fields: object) -> SessionAgent:
    mask = FieldMask(paths=named) if named else None
    overrides = AgentWithOverrides(
        id=base.id,
        override_mask=mask,
        **fields,  # type: ignore[arg-type]
    )
    return session_agent(base, overrides)


def refusal(base: Agent, *named: str, **fields: object) -> DroverError:
    with pytest.raises(DroverError) as refused:
        override(base, *named, **fields)
    return refused.value


def test_a_session_gets_a_whole_copy(base: Agent) -> None:
    copy = session_agent(base)
    assert list(copy.tools[0].agent_toolset.web_tools) == ["web_fetch"]  # settled for the session
    del copy.tools[0].agent_toolset.web_tools[:]
    for field in SessionAgent.DESCRIPTOR.fields:
        assert getattr(copy, field.name) == getattr(base, field.name)


def test_absent_texts_stay_absent_in_the_copy(base: Agent) -> None:
    base.ClearField("system")
    copy = session_agent(base)
    assert not copy.HasField("system")
    assert not copy.HasField("description")
    assert not copy.HasField("multiagent")


def test_archived_agents_are_not_for_new_sessions(base: Agent) -> None:
    base.archived_at.FromDatetime(NOON)
    with pytest.raises(DroverError) as refused:
        session_agent(base)
    assert refused.value.reason is Reason.ARCHIVED


def test_overrides_replace_what_they_name_and_keep_id_and_version(base: Agent) -> None:
    copy = override(base, system="be long", tools=[custom("b")])
    assert copy.system == "be long"
    assert [tool.custom.name for tool in copy.tools] == ["b"]
    assert (copy.id, copy.version, copy.model.id) == ("agent_1", 3, "m")
    assert base.system == "be brief"


def test_null_and_empty_overrides_clear(base: Agent) -> None:
    copy = override(base, "system", "tools")
    assert not copy.HasField("system")
    assert list(copy.tools) == []
    assert not override(base, "system", system="").HasField("system")


def test_the_model_cannot_be_overridden_by_null(base: Agent) -> None:
    error = refusal(base, "model")
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.error_code == "agent_model_required"
    assert error.message.startswith("agent.model: ")


@pytest.mark.parametrize("model_id", ["m", "n"])
def test_an_override_model_brings_no_effort_and_loses_the_agents(
    base: Agent, model_id: str
) -> None:
    given = ModelConfig(id=model_id, effort=Effort(type=EFFORT_LEVEL_LOW), inference_geo="eu")
    model = override(base, model=given).model
    assert model.id == model_id
    assert model.effort.type == EFFORT_LEVEL_HIGH
    assert model.inference_geo == "eu"


def test_override_tools_get_their_defaults_and_their_paths_below_agent(base: Agent) -> None:
    copy = override(base, tools=[toolset()])
    assert copy.tools[0].agent_toolset.default_config.enabled
    error = refusal(base, tools=[custom("a"), custom("a")])
    assert error.message.startswith("agent.tools.1.name: ")


def test_tools_are_not_cleared_while_skills_remain(base: Agent) -> None:
    base.skills.append(Skill(custom=SkillReference(skill_id="skill_1")))
    assert "read must be enabled" in refusal(base, "tools").message
    assert list(override(base, "tools", "skills").tools) == []


def test_servers_are_not_cleared_while_a_toolset_refers_to_them(base: Agent) -> None:
    base.tools.append(mcp("files"))
    base.mcp_servers.append(server("files"))
    assert refusal(base, "mcp_servers").message == (
        "agent.tools.2.mcp_server_name: 'files' is not listed in mcp_servers"
    )
    assert list(override(base, "mcp_servers", "tools").mcp_servers) == []


def test_skills_that_no_installation_has_are_refused_in_overrides_too(base: Agent) -> None:
    skills = [Skill(anthropic=SkillReference(skill_id="xlsx"))]
    assert refusal(base, skills=skills).message.startswith("agent.skills.0.type: ")


def test_a_running_sessions_tools_are_not_cleared_while_it_has_skills(base: Agent) -> None:
    base.skills.append(Skill(custom=SkillReference(skill_id="skill_1")))
    agent = session_agent(base)
    cleared = ReviseSessionAgentRequest(agent=agent, update_mask=FieldMask(paths=["tools"]))
    with pytest.raises(DroverError, match=r"agent\.tools: read must be enabled"):
        revised_session_agent(cleared)


def test_a_sessions_tools_are_replaced_under_the_rules_of_a_definition(base: Agent) -> None:
    agent = session_agent(base)
    revised = revised_session_agent(ReviseSessionAgentRequest(agent=agent, tools=[toolset()]))
    assert revised.tools[0].agent_toolset.default_config.enabled
    assert revised.model == agent.model
    bad = ReviseSessionAgentRequest(agent=agent, tools=[custom("bash")])
    with pytest.raises(DroverError, match=r"agent\.tools\.0\.name"):
        revised_session_agent(bad)


def test_a_sessions_tools_are_cleared_when_named_and_kept_when_absent(base: Agent) -> None:
    agent = session_agent(base)
    cleared = ReviseSessionAgentRequest(agent=agent, update_mask=FieldMask(paths=["tools"]))
    assert list(revised_session_agent(cleared).tools) == []
    kept = ReviseSessionAgentRequest(agent=agent, update_mask=FieldMask())
    assert revised_session_agent(kept) == agent


def test_a_sessions_servers_are_replaced_together_with_their_toolsets(base: Agent) -> None:
    agent = session_agent(base)
    request = ReviseSessionAgentRequest(
        agent=agent, tools=[mcp("files")], mcp_servers=[server("files")]
    )
    revised = revised_session_agent(request)
    assert [one.name for one in revised.mcp_servers] == ["files"]
    with pytest.raises(DroverError, match=r"agent\.mcp_servers\.0\.name"):
        revised_session_agent(ReviseSessionAgentRequest(agent=agent, mcp_servers=[server("a")]))
