from __future__ import annotations

import pytest

from catalogue.models import load
from chassis.errors import DroverError, Reason
from drover.agent.v1.model_pb2 import (
    EFFORT_LEVEL_HIGH,
    EFFORT_LEVEL_LOW,
    EFFORT_LEVEL_MAX,
    EFFORT_LEVEL_XHIGH,
    MODEL_SPEED_FAST,
    MODEL_SPEED_STANDARD,
    Effort,
    EffortLevel,
    ModelConfig,
)
from services.registry.domain.ability import check_ability

MODELS = load(None)


def check(model_id: str, **wanted: object) -> None:
    model = ModelConfig(id=model_id, **wanted)
    check_ability(model, MODELS.of(model_id), "agent.")


def effort(level: EffortLevel) -> Effort:
    return Effort(type=level)


@pytest.mark.parametrize(
    ("model_id", "level"),
    [
        ("claude-opus-5", EFFORT_LEVEL_MAX),
        ("us.anthropic.claude-opus-4-6-v1:0", EFFORT_LEVEL_LOW),
        ("claude-haiku-4-5", EFFORT_LEVEL_HIGH),
        ("a-model-of-somebody-elses", EFFORT_LEVEL_XHIGH),
    ],
)
def test_an_effort_that_the_model_has_or_may_have_is_taken(
    model_id: str, level: EffortLevel
) -> None:
    check(model_id, effort=effort(level))


@pytest.mark.parametrize(
    ("model_id", "wanted", "told"),
    [
        ("claude-haiku-4-5", {"effort": effort(EFFORT_LEVEL_LOW)}, "agent.model.effort: "),
        ("claude-opus-4-5", {"effort": effort(EFFORT_LEVEL_MAX)}, "low, medium, high"),
        ("claude-opus-4-6", {"effort": effort(EFFORT_LEVEL_XHIGH)}, "no effort 'xhigh'"),
        ("claude-sonnet-5", {"speed": MODEL_SPEED_FAST}, "agent.model.speed: "),
    ],
)
def test_what_the_model_is_known_not_to_have_is_refused_with_its_path(
    model_id: str, wanted: dict[str, object], told: str
) -> None:
    with pytest.raises(DroverError) as caught:
        check(model_id, **wanted)
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert told in str(caught.value)


def test_fast_mode_is_taken_where_the_model_has_it_or_is_not_known() -> None:
    check("claude-opus-5", speed=MODEL_SPEED_FAST)
    check("somebody/else", speed=MODEL_SPEED_FAST)
    check("claude-haiku-4-5", speed=MODEL_SPEED_STANDARD)
