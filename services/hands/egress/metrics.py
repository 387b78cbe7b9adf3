"""What operators see of the sandboxes' way out: `drover_hands_egress_…` for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from typing import Literal

    Direction = Literal["out", "in"]

RELAYED: Final = "relayed"
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


class EgressMetrics:
    """Counts connections of sandboxes."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._open = Gauge(
            "drover_hands_egress_open", "Connections of sandboxes that are open.", registry=registry
        )
        self._connections = Counter(
            "drover_hands_egress_connections",
            "Connections of sandboxes: relayed to the vault proxy, or why not.",
            ["outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "drover_hands_egress_connect_seconds",
            "Seconds until a connection was relayed: its grant and the vault proxy.",
            buckets=_SECONDS,
            registry=registry,
        )
        passed = Counter(
            "drover_hands_egress_bytes",
            "Bytes that were relayed, out of sandboxes and into them.",
            ["direction"],
            registry=registry,
        )
        self.out = passed.labels("out").inc
        self.into = passed.labels("in").inc

    def began(self) -> None:
        """Notes a connection."""
        self._open.inc()

    def ended(self) -> None:
        """Notes that one has ended."""
        self._open.dec()

    def relayed(self, seconds: float) -> None:
        """Notes that one is relayed, after so long."""
        self._connections.labels(RELAYED).inc()
        self._seconds.observe(seconds)

    def refused(self, reason: str) -> None:
        """Notes that one is not."""
        self._connections.labels(reason).inc()
