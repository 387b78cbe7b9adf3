"""What operators see of a brain: `drover_brain_…` for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter

if TYPE_CHECKING:
    from typing import Literal

    # Began from one; could not be read, and the log was folded whole; kept; not kept.
    Outcome = Literal["restored", "refused", "saved", "lost"]


class CheckpointMetrics:
    """Counts what became of checkpoints."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._outcomes = Counter(
            "drover_brain_checkpoints",
            "Checkpoints of folded logs, by what became of them.",
            ["outcome"],
            registry=registry or CollectorRegistry(),
        )

    def count(self, outcome: Outcome) -> None:
        """Notes one."""
        self._outcomes.labels(outcome).inc()
