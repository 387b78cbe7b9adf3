"""What each way of saying a field does to it: absent, null, empty and a value.

The gateway hands on which JSON keys were present in `update_mask`; a gRPC caller may leave the
mask out, and then the fields that are set count (SEMANTICS §10, §24 no. 9).
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from chassis.errors import Reason
from drover.agent.v1 import agent_service_pb2 as pb
from drover.agent.v1.agent_pb2 import Agent, ExecutionIdentity, ServiceAccount
from drover.agent.v1.model_pb2 import (
    EFFORT_LEVEL_HIGH,
    EFFORT_LEVEL_LOW,
    MODEL_SPEED_FAST,
    MODEL_SPEED_STANDARD,
    Effort,
    ModelConfig,
)
from drover.agent.v1.tool_pb2 import AgentToolset, CustomTool, Tool
from tests.integration.registry.refusal import refusal

LOW, HIGH = Effort(type=EFFORT_LEVEL_LOW), Effort(type=EFFORT_LEVEL_HIGH)
CUSTOM = Tool(custom=CustomTool(name="a", description="d", input_schema='{"type":"object"}'))
TOOLSET = Tool(agent_toolset=AgentToolset())
KEEPS, CLEARS = "keeps", "clears"


@pytest.fixture
async def stored(agents: Any) -> Agent:
    request = pb.CreateAgentRequest(
        name="Ada",
        model=ModelConfig(id="m", effort=LOW, speed=MODEL_SPEED_FAST, inference_geo="us"),
        description="d",
        system="s",
        tools=[CUSTOM],
        metadata={"k": "v"},
    )
    return (await agents.CreateAgent(request)).agent


async def update(agents: Any, stored: Agent, mask: list[str] | None, **fields: Any) -> Agent:
    paths = None if mask is None else FieldMask(paths=mask)
    request = pb.UpdateAgentRequest(agent_id=stored.id, update_mask=paths, **fields)
    return (await agents.UpdateAgent(request)).agent


@pytest.mark.parametrize("field", ["description", "system", "tools", "metadata"])
@pytest.mark.parametrize(
    ("mask", "effect"), [(None, KEEPS), ([], KEEPS), (["FIELD"], CLEARS), (["name"], KEEPS)]
)
async def test_absent_keeps_and_null_clears(
    agents: Any, stored: Agent, field: str, mask: list[str] | None, effect: str
) -> None:
    paths = mask and [field if path == "FIELD" else path for path in mask]
    after = await update(agents, stored, paths, name="Ada")
    if effect == KEEPS:
        assert getattr(after, field) == getattr(stored, field)
        assert after.version == 1
    else:
        assert not getattr(after, field)
        assert after.version == 2


@pytest.mark.parametrize("field", ["mcp_servers", "skills", "multiagent", "execution_identity"])
async def test_null_for_what_is_empty_already_makes_no_version(
    agents: Any, stored: Agent, field: str
) -> None:
    assert await update(agents, stored, [field]) == stored


@pytest.mark.parametrize("field", ["name", "model"])
async def test_null_is_refused_for_name_and_model(agents: Any, stored: Agent, field: str) -> None:
    error = await refusal(update(agents, stored, [field]))
    assert error.message == f"{field}: cannot be cleared"
    read = await agents.GetAgent(pb.GetAgentRequest(agent_id=stored.id))
    assert read.agent == stored


@pytest.mark.parametrize("mask", [None, ["description", "system"]])
async def test_empty_texts_clear(agents: Any, stored: Agent, mask: list[str] | None) -> None:
    after = await update(agents, stored, mask, description="", system="")
    assert not after.HasField("description")
    assert not after.HasField("system")


async def test_an_empty_name_is_refused(agents: Any, stored: Agent) -> None:
    error = await refusal(update(agents, stored, None, name=""))
    assert error.message.startswith("name: ")


async def test_arrays_replace_whole(agents: Any, stored: Agent) -> None:
    after = await update(agents, stored, None, tools=[TOOLSET])
    assert len(after.tools) == 1
    assert after.tools[0].HasField("agent_toolset")


@pytest.mark.parametrize(
    ("given", "effort", "result"),
    [
        (ModelConfig(id="m"), LOW, (MODEL_SPEED_STANDARD, "")),
        (ModelConfig(id="m", effort=HIGH), HIGH, (MODEL_SPEED_STANDARD, "")),
        (ModelConfig(id="m", speed=MODEL_SPEED_FAST), LOW, (MODEL_SPEED_FAST, "")),
        (ModelConfig(id="m", inference_geo="eu"), LOW, (MODEL_SPEED_STANDARD, "eu")),
        (ModelConfig(id="n"), HIGH, (MODEL_SPEED_STANDARD, "")),
        (ModelConfig(id="n", effort=LOW), LOW, (MODEL_SPEED_STANDARD, "")),
    ],
)
async def test_the_model_is_replaced_whole_but_the_same_one_keeps_its_effort(
    agents: Any, stored: Agent, given: ModelConfig, effort: Effort, result: tuple[int, str]
) -> None:
    model = (await update(agents, stored, ["model"], model=given)).model
    assert (model.id, model.effort) == (given.id, effort)
    assert (model.speed, model.inference_geo) == result
    assert model.HasField("inference_geo") == given.HasField("inference_geo")


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        ({"set": {"n": "1"}}, {"k": "v", "n": "1"}),
        ({"set": {"k": "w"}}, {"k": "w"}),
        ({"set": {"k": ""}}, {"k": ""}),
        ({"remove": ["k"]}, {}),
        ({"remove": ["unknown"]}, {"k": "v"}),
        ({}, {"k": "v"}),
    ],
)
async def test_metadata_merges_by_key(
    agents: Any, stored: Agent, patch: dict[str, Any], result: dict[str, str]
) -> None:
    after = await update(agents, stored, ["metadata"], metadata=patch)
    assert dict(after.metadata) == result
    assert after.version == (1 if result == {"k": "v"} else 2)


async def test_naming_the_default_identity_is_no_difference(agents: Any, stored: Agent) -> None:
    default = ExecutionIdentity(service_account=ServiceAccount())
    assert await update(agents, stored, None, execution_identity=default) == stored


async def test_posting_an_agent_back_as_it_was_answered_is_no_difference(
    agents: Any, stored: Agent
) -> None:
    with_toolset = await update(agents, stored, None, tools=[TOOLSET, CUSTOM])
    again = await update(
        agents,
        stored,
        None,
        name=with_toolset.name,
        model=with_toolset.model,
        description=with_toolset.description,
        system=with_toolset.system,
        tools=with_toolset.tools,
        execution_identity=with_toolset.execution_identity,
        metadata={"set": dict(with_toolset.metadata)},
        version=2,
    )
    assert again == with_toolset


@pytest.mark.parametrize("fields", [{}, {"name": "Ada"}, {"name": "Grace"}], ids=str)
async def test_the_version_lock_holds_whatever_would_change(
    agents: Any, stored: Agent, fields: dict[str, Any]
) -> None:
    for version in (2, 3):
        error = await refusal(update(agents, stored, None, version=version, **fields))
        assert (error.reason, error.rule.http) == (Reason.VERSION_MISMATCH, 409)
    after = await update(agents, stored, None, version=1, **fields)
    assert after.name == fields.get("name", "Ada")


async def test_a_lock_below_1_is_a_bad_request_and_no_conflict(agents: Any, stored: Agent) -> None:
    error = await refusal(update(agents, stored, None, version=0))
    assert (error.reason, error.rule.http) == (Reason.INVALID_ARGUMENT, 400)


async def test_a_refused_update_leaves_every_field_and_the_version_alone(
    agents: Any, stored: Agent
) -> None:
    error = await refusal(
        update(agents, stored, None, name="Grace", system="new", tools=[CUSTOM, CUSTOM])
    )
    assert error.message.startswith("tools.1.name: ")
    read = await agents.GetAgent(pb.GetAgentRequest(agent_id=stored.id))
    assert read.agent == stored
