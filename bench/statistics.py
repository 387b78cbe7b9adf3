"""Percentiles with bootstrap intervals."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Distribution:
    """Samples of one quantity, in milliseconds unless said otherwise."""

    samples: tuple[float, ...]

    def percentile(self, fraction: float) -> float:
        """The nearest-rank percentile; `fraction` is in 0..1."""
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]

    def interval(self, fraction: float, *, rounds: int = 400) -> tuple[float, float]:
        """The bootstrap 95 % interval of a percentile, from a fixed seed."""
        source = random.Random(1)  # noqa: S311 - statistics, not secrets
        estimates = sorted(
            Distribution(tuple(source.choices(self.samples, k=len(self.samples)))).percentile(
                fraction
            )
            for _ in range(rounds)
        )
        return estimates[int(rounds * 0.025)], estimates[int(rounds * 0.975)]

    def summary(self) -> dict[str, float]:
        """What goes into the report."""
        low, high = self.interval(0.5)
        return {
            "n": float(len(self.samples)),
            "p50": self.percentile(0.5),
            "p50_low": low,
            "p50_high": high,
            "p95": self.percentile(0.95),
            "p99": self.percentile(0.99),
        }
