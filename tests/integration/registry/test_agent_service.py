from __future__ import annotations

from typing import Any

from drover.agent.v1 import agent_service_pb2 as pb
from drover.agent.v1.model_pb2 import EFFORT_LEVEL_HIGH, MODEL_SPEED_STANDARD, ModelConfig


async def test_created_agent_is_read_back_with_its_defaults_resolved(agents: Any) -> None:
    created = await agents.CreateAgent(
        pb.CreateAgentRequest(name="Ada", model=ModelConfig(id="claude-opus-5-5"))
    )
    read = await agents.GetAgent(pb.GetAgentRequest(agent_id=created.agent.id))
    assert read.agent == created.agent
    assert read.agent.version == 1
    assert read.agent.model.effort.type == EFFORT_LEVEL_HIGH
    assert read.agent.model.speed == MODEL_SPEED_STANDARD
    assert read.agent.execution_identity.HasField("service_account")
