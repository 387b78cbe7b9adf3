"""What operators see of MCP: `drover_mcp_…` for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class McpMeter:
    """Counts what became of lists and calls, and of refreshes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "drover_mcp_requests",
            "Lists and calls of MCP servers' tools, by what became of them.",
            ("method", "outcome"),
            registry=registry,
        )
        self._seconds = Histogram(
            "drover_mcp_request_seconds",
            "Seconds that they took, the server's time included.",
            ("method",),
            registry=registry,
            buckets=_SECONDS,
        )
        self._refreshes = Counter(
            "drover_oauth_refreshes",
            "Exchanges of refresh tokens, by what became of them.",
            ("outcome",),
            registry=registry,
        )
        self._open = Gauge(
            "drover_mcp_connections", "Connections to MCP servers that are kept.", registry=registry
        )

    def requested(self, method: str, outcome: str, seconds: float) -> None:
        """Notes one that has ended."""
        self._requests.labels(method, outcome).inc()
        self._seconds.labels(method).observe(seconds)

    def refreshed(self, outcome: str) -> None:
        """Notes an exchange that has ended."""
        self._refreshes.labels(outcome).inc()

    def watch(self, connections: Callable[[], int]) -> None:
        """Asks for the number of connections whenever it is scraped."""
        self._open.set_function(connections)
