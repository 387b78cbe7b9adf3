"""What is counted of requests to models."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from services.brain.model.metered import MeteredModel
from services.brain.model.port import ModelError, ModelErrorKind

EVENTS = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}},
    {"type": "content_block_delta"},
    {"type": "message_delta", "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]


class Model:
    """Answers, and fails where it is told to: at once, or within its answer."""

    provider = "anthropic"

    def __init__(self, fails: str = "") -> None:
        self._fails = fails

    @asynccontextmanager
    async def stream(self, body, *, betas=()):
        self._maybe("at once")
        yield self._events()

    async def _events(self):
        for event in EVENTS:
            yield event
            self._maybe("within")

    def _maybe(self, where: str) -> None:
        if self._fails == where:
            raise ModelError(ModelErrorKind.OVERLOADED, "busy", retryable=True)


async def read(model: Model, registry: CollectorRegistry, most: int = 99) -> None:
    async with MeteredModel(model, registry).stream(b"{}") as events:
        async for event in events:
            assert event in EVENTS
            most -= 1
            if not most:
                break


def requests(registry: CollectorRegistry, outcome: str) -> float | None:
    return registry.get_sample_value("drover_model_requests_total", {"outcome": outcome})


async def test_an_answer_is_counted_with_its_tokens_and_its_time() -> None:
    registry = CollectorRegistry()
    await read(Model(), registry)
    assert requests(registry, "answered") == 1
    assert registry.get_sample_value("drover_model_tokens_total", {"kind": "input"}) == 7
    assert registry.get_sample_value("drover_model_tokens_total", {"kind": "output"}) == 5
    assert registry.get_sample_value("drover_model_request_seconds_count") == 1


async def test_what_is_left_before_its_end_is_no_answer() -> None:
    registry = CollectorRegistry()
    await read(Model(), registry, most=2)
    assert requests(registry, "left") == 1
    assert registry.get_sample_value("drover_model_first_event_seconds_count") == 1
    assert registry.get_sample_value("drover_model_request_seconds_count") == 0


@pytest.mark.parametrize("where", ["at once", "within"])
async def test_a_failure_is_counted_by_its_kind_and_goes_on_its_way(where: str) -> None:
    registry = CollectorRegistry()
    with pytest.raises(ModelError, match="busy"):
        await read(Model(where), registry)
    assert requests(registry, "overloaded") == 1
