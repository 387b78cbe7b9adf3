"""Metrics of the egress proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from chassis.telemetry.metrics import BUCKETS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from services.vault_proxy.domain.audit import Kind, Outcome


class Meter:
    """Counts verdicts, and times requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._verdicts = Counter(
            "drover_egress_verdicts",
            "Requests of sandboxes by what was decided and why.",
            ("kind", "verdict", "reason"),
            registry=registry,
        )
        # Looked up by their labels, these would cost as much as all the rest of a decision.
        self._known: dict[tuple[str, str, str], Counter] = {}
        self._seconds = Histogram(
            "drover_egress_hop_seconds",
            "From a request's head to the head of its answer, the server's time included.",
            registry=registry,
            buckets=BUCKETS,
        )
        self._open = Gauge(
            "drover_egress_connections", "Connections of sandboxes.", registry=registry
        )

    def decided(self, kind: Kind, verdict: Outcome, reason: str) -> None:
        """Counts a decision."""
        key = (kind, verdict, reason)
        if (counter := self._known.get(key)) is None:
            counter = self._known[key] = self._verdicts.labels(*key)
        counter.inc()

    def answered(self, seconds: float) -> None:
        """Notes how long an answer took."""
        self._seconds.observe(seconds)

    def opened(self, by: int) -> None:
        """Counts a connection, or takes it back."""
        self._open.inc(by)
