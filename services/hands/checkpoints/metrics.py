"""What operators see of checkpoints: `drover_hands_checkpoint…` for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from typing import Literal

    Work = Literal["take", "restore"]
    # Done; there was nothing new; no more wanted, for its workspace is gone or another's; not done.
    Outcome = Literal["done", "unchanged", "overtaken", "failed"]

_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)


class CheckpointMetrics:
    """Counts what became of checkpoints."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._outcomes = Counter(
            "drover_hands_checkpoints",
            "Checkpoints of workspaces, by what was done and what became of it.",
            ["work", "outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "drover_hands_checkpoint_seconds",
            "Seconds that taking and restoring a checkpoint took.",
            ["work"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._bytes = Counter(
            "drover_hands_checkpoint_bytes",
            "Bytes of checkpoints that were stored and read, compressed.",
            ["work"],
            registry=registry,
        )
        self._waiting = Gauge(
            "drover_hands_checkpoints_waiting",
            "Workspaces that may have changed since their last checkpoint.",
            registry=registry,
        )
        self._undeleted = Counter(
            "drover_hands_checkpoints_undeleted",
            "Attempts to delete an old checkpoint that failed; they are repeated.",
            registry=registry,
        )

    def count(self, work: Work, outcome: Outcome, seconds: float, size: int = 0) -> None:
        """Notes one that has ended."""
        self._outcomes.labels(work, outcome).inc()
        if outcome == "done":
            self._seconds.labels(work).observe(seconds)
            self._bytes.labels(work).inc(size)

    def waiting(self, count: int) -> None:
        """Notes how many wait."""
        self._waiting.set(count)

    def undeleted(self) -> None:
        """Notes that one could not be deleted."""
        self._undeleted.inc()
