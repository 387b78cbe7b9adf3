"""A model of which it is counted how its requests end: `drover_model_…` for Prometheus."""

from __future__ import annotations

import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from services.brain.model.port import ModelError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from services.brain.model.port import ModelClient

_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
_ANSWERED: Final = "answered"
_LEFT: Final = "left"
_USAGE: Final = {
    "input_tokens": "input",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_write",
}


class MeteredModel:
    """Passes everything on. Outcomes are `answered`, `left` (an interrupt, or a stop), or the kinds
    of failures.
    """

    def __init__(self, model: ModelClient, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._model = model
        self._requests = Counter(
            "drover_model_requests",
            "Requests to models, by how they ended.",
            ["outcome"],
            registry=registry,
        )
        self._first = Histogram(
            "drover_model_first_event_seconds",
            "Seconds from a request to the first event of its answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._whole = Histogram(
            "drover_model_request_seconds",
            "Seconds from a request until its answer was whole.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._tokens = Counter(
            "drover_model_tokens", "Tokens, by their kind.", ["kind"], registry=registry
        )

    @property
    def provider(self) -> str:
        """Who serves the models."""
        return self._model.provider

    @asynccontextmanager
    async def stream(
        self, body: bytes, *, betas: Sequence[str] = ()
    ) -> AsyncIterator[AsyncIterator[Mapping[str, Any]]]:
        """Sends one request, as the model does. Raises what it raises."""
        began, ending = time.monotonic(), _Ending()
        try:
            async with (
                self._model.stream(body, betas=betas) as events,
                aclosing(self._passed(events, began, ending)) as passed,
            ):
                yield passed
        except ModelError as error:
            ending.outcome = error.kind.value
            raise
        finally:
            self._requests.labels(ending.outcome).inc()

    async def _passed(
        self, events: AsyncIterator[Mapping[str, Any]], began: float, ending: _Ending
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        waits = True
        async for event in events:
            if waits:
                waits = False
                self._first.observe(time.monotonic() - began)
            self._count(event)
            yield event
        ending.outcome = _ANSWERED
        self._whole.observe(time.monotonic() - began)

    def _count(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":
            usage = event.get("message", {}).get("usage") or {}
            for name, label in _USAGE.items():
                self._tokens.labels(label).inc(usage.get(name) or 0)
        elif kind == "message_delta":
            written = (event.get("usage") or {}).get("output_tokens")
            self._tokens.labels("output").inc(written or 0)


class _Ending:
    """How a request ended, as far as it is known."""

    outcome = _LEFT
