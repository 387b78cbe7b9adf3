from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_pb2 import Agent
from drover.agent.v1.agent_service_pb2 import CreateAgentRequest, UpdateAgentRequest
from drover.agent.v1.model_pb2 import (
    EFFORT_LEVEL_HIGH,
    EFFORT_LEVEL_LOW,
    MODEL_SPEED_FAST,
    MODEL_SPEED_STANDARD,
    Effort,
    ModelConfig,
)
from services.registry.domain.agent import new_agent, updated_agent
from tests.unit.registry.definitions import custom, toolset

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)
LOW = Effort(type=EFFORT_LEVEL_LOW)


def stored(**fields: object) -> Agent:
    given = {"name": "Ada", "model": ModelConfig(id="m", effort=LOW)} | fields
    return new_agent(CreateAgentRequest(**given), "agent_1", NOON)  # type: ignore[arg-type]


def update(agent: Agent, *named: str, **fields: object) -> Agent:
    """`named` are the keys that were present; without any, those that are set count."""
    mask = FieldMask(paths=named) if named else None
    request = UpdateAgentRequest(
        agent_id=agent.id,
        update_mask=mask,
        **fields,  # type: ignore[arg-type]
    )
    return updated_agent(agent, request, LATER)


def refusal(agent: Agent, *named: str, **fields: object) -> DroverError:
    before = agent.SerializeToString(deterministic=True)
    with pytest.raises(DroverError) as refused:
        update(agent, *named, **fields)
    assert agent.SerializeToString(deterministic=True) == before
    return refused.value


def test_a_new_agent_has_version_1_and_no_empty_texts() -> None:
    agent = stored(description="", system="")
    assert agent.version == 1
    assert not agent.HasField("description")
    assert not agent.HasField("system")
    assert agent.created_at == agent.updated_at
    assert agent.created_at.ToDatetime(UTC) == NOON


def test_a_change_makes_the_next_version_and_keeps_the_old_message() -> None:
    before = stored()
    after = update(before, name="Grace")
    assert (before.version, before.name) == (1, "Ada")
    assert (after.version, after.name) == (2, "Grace")
    assert after.created_at == before.created_at
    assert after.updated_at.ToDatetime(UTC) == LATER


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "Ada"},
        {"model": ModelConfig(id="m")},
        {"tools": [toolset()]},
        {"version": 1},
    ],
    ids=str,
)
def test_no_difference_makes_no_version(fields: dict[str, object]) -> None:
    before = stored(tools=[toolset()])
    assert update(before, **fields) is before


def test_another_version_is_a_conflict_even_when_nothing_would_change() -> None:
    before = stored()
    assert refusal(before, version=2).reason is Reason.VERSION_MISMATCH
    assert refusal(before, version=2, name="Ada").reason is Reason.VERSION_MISMATCH


def test_archived_agents_are_read_only_even_under_a_wrong_version() -> None:
    before = stored()
    before.archived_at.FromDatetime(NOON)
    assert refusal(before).reason is Reason.ARCHIVED
    assert refusal(before, name="Grace", version=9).reason is Reason.ARCHIVED


def test_absent_keeps_null_clears_and_arrays_replace() -> None:
    before = stored(description="d", system="s", tools=[toolset(), custom("a")])
    assert update(before, name="Grace").description == "d"
    cleared = update(before, "description", "system", "tools")
    assert not cleared.HasField("description")
    assert not cleared.HasField("system")
    assert list(cleared.tools) == []
    replaced = update(before, "tools", tools=[custom("b")])
    assert [tool.custom.name for tool in replaced.tools] == ["b"]


def test_empty_texts_clear_like_null() -> None:
    before = stored(description="d", system="s")
    after = update(before, "description", "system", description="", system="")
    assert not after.HasField("description")
    assert not after.HasField("system")


@pytest.mark.parametrize("field", ["name", "model"])
def test_name_and_model_cannot_be_cleared(field: str) -> None:
    assert refusal(stored(), field).message == f"{field}: cannot be cleared"


def test_a_field_outside_the_mask_is_not_changed() -> None:
    after = update(stored(), "name", name="Grace", system="ignored by its mask")
    assert after.name == "Grace"
    assert not after.HasField("system")


def test_a_mask_may_only_name_fields() -> None:
    assert refusal(stored(), "nickname").message == "update_mask: no field 'nickname'"


def test_the_model_is_replaced_but_keeps_its_effort() -> None:
    before = stored(
        model=ModelConfig(id="m", effort=LOW, speed=MODEL_SPEED_FAST, inference_geo="us")
    )
    model = update(before, model=ModelConfig(id="m")).model
    assert model.effort == LOW
    assert model.speed == MODEL_SPEED_STANDARD
    assert not model.HasField("inference_geo")


def test_another_model_starts_with_its_own_default_effort() -> None:
    model = update(stored(), model=ModelConfig(id="n")).model
    assert model.effort.type == EFFORT_LEVEL_HIGH


def test_a_given_effort_wins() -> None:
    model = update(stored(), model=ModelConfig(id="m", effort=Effort(type=EFFORT_LEVEL_HIGH))).model
    assert model.effort.type == EFFORT_LEVEL_HIGH


def test_metadata_merges_by_key() -> None:
    before = stored(metadata={"keep": "1", "drop": "2", "set": "3"})
    after = update(before, metadata={"set": {"set": "new", "empty": ""}, "remove": ["drop", "no"]})
    assert dict(after.metadata) == {"keep": "1", "set": "new", "empty": ""}


def test_null_metadata_clears_all_pairs() -> None:
    assert dict(update(stored(metadata={"a": "1"}), "metadata").metadata) == {}


def test_metadata_may_not_grow_past_16_pairs_by_merging() -> None:
    before = stored(metadata={f"a{number}": "" for number in range(10)})
    error = refusal(before, metadata={"set": {f"b{number}": "" for number in range(7)}})
    assert error.error_code == "invalid_metadata"
    swapped = {"set": {"new": ""}, "remove": ["a0"]}
    assert len(update(before, metadata=swapped).metadata) == 10


def test_a_cleared_execution_identity_is_the_default_again() -> None:
    before = stored()
    assert update(before, "execution_identity") is before
    assert before.execution_identity.HasField("service_account")


def test_the_whole_result_is_checked_not_just_what_changed() -> None:
    before = stored(tools=[custom("a")])
    error = refusal(before, "tools", tools=[custom("a"), custom("a")])
    assert error.message.startswith("tools.1.name: ")
