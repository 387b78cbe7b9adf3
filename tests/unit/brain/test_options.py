"""How a request is headed: what the agent asks of its model, as far as the model has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catalogue.models import load
from drover.agent.v1.model_pb2 import (
    EFFORT_LEVEL_HIGH,
    EFFORT_LEVEL_LOW,
    EFFORT_LEVEL_XHIGH,
    MODEL_SPEED_FAST,
    MODEL_SPEED_STANDARD,
    Effort,
    ModelConfig,
)
from services.brain.harness import options

MODELS = load(None)


def head(model_id: str, *, ceiling: int = 32_000, **wanted: Any) -> dict[str, Any]:
    model = ModelConfig(id=model_id, **wanted)
    said: dict[str, Any] = json.loads(options.head(model, MODELS.of(model_id), ceiling) + b"}")
    assert said.pop("model") == model_id
    assert said.pop("stream") is True
    return said


def betas(model_id: str, **wanted: Any) -> tuple[str, ...]:
    return options.betas(ModelConfig(id=model_id, **wanted), MODELS.of(model_id))


THINKING = {"thinking": {"type": "adaptive"}}


@pytest.mark.parametrize(
    "model_id",
    ["claude-opus-5", "claude-sonnet-4-6", "us.anthropic.claude-opus-4-6-v1:0", "claude-sonnet-5"],
)
def test_models_that_decide_about_thinking_are_asked_to_think(model_id: str) -> None:
    assert head(model_id) == {"max_tokens": 32_000, **THINKING}


@pytest.mark.parametrize(
    "model_id", ["claude-sonnet-4-5", "claude-opus-4-5@20251101", "claude-haiku-4-5-20251001"]
)
def test_earlier_models_are_not_asked_to_think(model_id: str) -> None:
    assert head(model_id) == {"max_tokens": 32_000}


def test_a_model_that_nobody_knows_is_asked_for_nothing_that_the_agent_does_not_say() -> None:
    assert head("qwen/whatever:7b") == {"max_tokens": 32_000}
    assert betas("qwen/whatever:7b", speed=MODEL_SPEED_STANDARD) == ()
    said = head("qwen/whatever:7b", effort=Effort(type=EFFORT_LEVEL_XHIGH), speed=MODEL_SPEED_FAST)
    assert (said["output_config"], said["speed"]) == ({"effort": "xhigh"}, "fast")


def test_the_effort_is_said_where_it_is_not_the_models_own() -> None:
    said = head("claude-opus-5", effort=Effort(type=EFFORT_LEVEL_LOW))
    assert said["output_config"] == {"effort": "low"}
    assert "output_config" not in head("claude-opus-5", effort=Effort(type=EFFORT_LEVEL_HIGH))


def test_what_a_model_is_known_not_to_have_is_left_out() -> None:
    wanted = {"effort": Effort(type=EFFORT_LEVEL_LOW), "speed": MODEL_SPEED_FAST}
    assert head("claude-haiku-4-5", **wanted) == {"max_tokens": 32_000}
    assert betas("claude-haiku-4-5", **wanted) == ()


def test_fast_mode_goes_with_its_beta() -> None:
    assert head("claude-opus-5", speed=MODEL_SPEED_FAST)["speed"] == "fast"
    assert betas("claude-opus-5", speed=MODEL_SPEED_FAST) == (options.FAST_MODE_BETA,)


def test_the_place_of_inference_is_said_as_it_is_given() -> None:
    assert head("claude-opus-5", inference_geo="us")["inference_geo"] == "us"


def test_no_model_is_asked_for_more_than_it_can_write() -> None:
    most = MODELS.of("claude-opus-5").max_output_tokens
    assert head("claude-opus-5", ceiling=10 * most)["max_tokens"] == most
    assert head("claude-opus-5", ceiling=100)["max_tokens"] == 100
    assert head("somebody/else", ceiling=10**6)["max_tokens"] == 32_000
