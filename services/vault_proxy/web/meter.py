"""What operators see of the web tools: `drover_web_…` for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class WebMeter:
    """Counts calls by what became of them, and times them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "drover_web_calls",
            "Calls of the web tools, by their error codes, or ok.",
            ("tool", "outcome"),
            registry=registry,
        )
        self._seconds = Histogram(
            "drover_web_call_seconds",
            "Seconds that they took, the servers' time included.",
            ("tool",),
            registry=registry,
            buckets=_SECONDS,
        )

    def called(self, tool: str, outcome: str, seconds: float) -> None:
        """Notes one that has ended."""
        self._calls.labels(tool, outcome).inc()
        self._seconds.labels(tool).observe(seconds)
