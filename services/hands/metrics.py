"""What operators see of hands: `drover_hands_…` for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from chassis.clock import Clock
    from services.hands.pool import Pool

_PREFIX: Final = "drover_hands_"
_POOL: Final = ("sandbox", "image", "memory_mib")
_MIB: Final = 1024 * 1024


class PoolMetrics(Collector):
    """The pool as it is when it is scraped. Pools are told apart by what their sandboxes are."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Hands that live, and the spares of each recipe."""
        now = self._clock.monotonic()
        # Scraped in a thread of its own: what is looked at may change meanwhile.
        ages = [now - hand.started_at for hand in self._pool.hands()]
        yield GaugeMetricFamily(_PREFIX + "live", "Sandboxes of sessions.", len(ages))
        oldest = max(ages, default=0.0)
        yield GaugeMetricFamily(_PREFIX + "oldest_seconds", "Age of the oldest of them.", oldest)
        ready = GaugeMetricFamily(_PREFIX + "spares_ready", "Sandboxes kept ready.", labels=_POOL)
        wanted = GaugeMetricFamily(
            _PREFIX + "spares_wanted", "Sandboxes that should be kept ready.", labels=_POOL
        )
        failing = GaugeMetricFamily(
            _PREFIX + "spares_failures", "Starts of spares that failed in a row.", labels=_POOL
        )
        age = GaugeMetricFamily(
            _PREFIX + "spares_oldest_seconds", "Age of the oldest spare.", labels=_POOL
        )
        claims = CounterMetricFamily(
            _PREFIX + "spares_claims", "New sessions that found a spare.", labels=_POOL
        )
        misses = CounterMetricFamily(
            _PREFIX + "spares_misses", "New sessions that found none left.", labels=_POOL
        )
        for shelf in self._pool.spares.shelves:
            blueprint = shelf.blueprint
            labels = (
                blueprint.kind,
                blueprint.image,
                str(blueprint.limits.memory_bytes // _MIB),
            )
            ready.add_metric(labels, shelf.ready_count)
            wanted.add_metric(labels, shelf.wanted)
            failing.add_metric(labels, shelf.failures)
            age.add_metric(labels, shelf.oldest(now))
            claims.add_metric(labels, shelf.claims)
            misses.add_metric(labels, shelf.misses)
        yield from (ready, wanted, failing, age, claims, misses)
