"""What operators see of sessions: `drover_session_…` for Prometheus."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from chassis.telemetry.metrics import BUCKETS
from services.session.domain.ports import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry

    from services.session.domain.news import News
    from services.session.domain.ports import About, SessionStore, Transaction

T = TypeVar("T")

_PREFIX: Final = "drover_session_"
_GROUPS: Final = (1, 2, 4, 8, 16, 32, 64, 128)


class SessionMetrics:
    """Counts what is committed, and shows what the parts of the service count themselves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, what: str) -> Counter:
            return Counter(_PREFIX + name, what, registry=registry)

        self._registry = registry
        self._events = counter("events", "Events that entered a log.")
        self._inputs = counter("inputs", "Events that were put into an inbox.")
        self._wakes = counter("wakes", "Commits that left a session in need of a brain.")
        self._lost = counter("leases_lost", "Leases that were taken from their holder.")
        self._found = counter("stuck_found", "Sessions that were found stuck.")
        self._stuck = Gauge(_PREFIX + "stuck", "Sessions that are stuck now.", registry=registry)
        self._lapsed = counter("work_lapsed", "Work that was taken from a lost worker.")
        self._work = Gauge(
            _PREFIX + "work_waiting",
            "Work of self-hosted environments that no worker has acknowledged.",
            registry=registry,
        )
        self._oldest_work = Gauge(
            _PREFIX + "work_oldest_seconds",
            "For how long the oldest of that work has waited.",
            registry=registry,
        )
        self.write_seconds = Histogram(
            _PREFIX + "write_seconds",
            "Seconds from a write's begin until it was durable, or refused.",
            buckets=BUCKETS,
            registry=registry,
        )
        self.group_writes = Histogram(
            _PREFIX + "group_writes",
            "Writes that became durable together.",
            buckets=_GROUPS,
            registry=registry,
        )

    def gauge(self, name: str, what: str, now: Callable[[], float]) -> None:
        """Shows what `now` answers when it is scraped."""
        Gauge(_PREFIX + name, what, registry=self._registry).set_function(now)

    def count(self, name: str, what: str, now: Callable[[], float]) -> None:
        """Shows a count that only grows and that `now` answers when it is scraped."""
        self._registry.register(_Count(_PREFIX + name, what, now))

    def hear(self, news: News) -> None:
        """Counts one transaction's news."""
        self._events.inc(len(news.stamped) - news.deleted)  # a deletion's event is in no log
        self._inputs.inc(len(news.echoes))
        self._wakes.inc(news.wake)
        self._lost.inc(news.fenced)

    def stuck(self, sessions: int, found: int) -> None:
        """So many sessions are stuck, of which so many were found just now."""
        self._stuck.set(sessions)
        self._found.inc(found)

    def work(self, waiting: int, oldest_seconds: float) -> None:
        """So many items wait for a worker that acknowledges them, the oldest for so long."""
        self._work.set(waiting)
        self._oldest_work.set(oldest_seconds)

    def lapsed_work(self) -> None:
        """An item was taken from its worker."""
        self._lapsed.inc()


class _Count(Collector):
    """A counter that is kept elsewhere."""

    def __init__(self, name: str, what: str, now: Callable[[], float]) -> None:
        self._name, self._what, self._now = name, what, now

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The counter as it is now."""
        yield CounterMetricFamily(self._name, self._what, self._now())


class MeasuredStore:
    """A store whose writes are timed; those that are acknowledged together count as a group."""

    def __init__(self, store: SessionStore, metrics: SessionMetrics) -> None:
        self._store = store
        self._metrics = metrics
        self._group = 0

    async def read(self, fn: Callable[[Transaction], T], /) -> T:
        """Runs `fn` on a snapshot of what is committed."""
        return await self._store.read(fn)

    async def write(self, fn: Callable[[Transaction], T], /, *, about: About = UNKNOWN) -> T:
        """Runs `fn` in a transaction and returns once it is durable."""
        return await self.submit(fn, about=about)

    def submit(
        self, fn: Callable[[Transaction], T], /, *, about: About = UNKNOWN
    ) -> asyncio.Future[T]:
        """Has `fn` run in a transaction; the future ends once it is durable."""
        written = self._store.submit(fn, about=about)
        written.add_done_callback(partial(self._measure, time.perf_counter()))
        return written

    def _measure(self, start: float, written: asyncio.Future[Any]) -> None:
        self._metrics.write_seconds.observe(time.perf_counter() - start)
        if written.cancelled() or written.exception() is not None:
            return
        # Whoever shares a commit is acknowledged in one turn of the loop.
        if not self._group:
            asyncio.get_running_loop().call_soon(self._count)
        self._group += 1

    def _count(self) -> None:
        self._metrics.group_writes.observe(self._group)
        self._group = 0
