"""What operators see of requests: counts and times by route, and one log line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from prometheus_client import Counter, Gauge, Histogram

from chassis.telemetry.metrics import BUCKETS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

# Asked many times a minute, by machines: a log that is read by people says so only for debugging.
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
_log = structlog.get_logger("gateway.access")


class Traffic:
    """Counts requests by verb, route template and status, never by path: those hold ids."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "drover_http_requests",
            "HTTP requests answered.",
            ("method", "route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "drover_http_request_seconds",
            "Seconds until an HTTP request was answered whole.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=registry,
        )
        self.open = Gauge(
            "drover_http_open_streams", "Event streams that are open now.", registry=registry
        )

    def note(
        self,
        verb: str,
        route: str,
        path: str,
        status: int,
        seconds: float,
        *,
        worker: str = "",
        api_key: str = "",
    ) -> None:
        """Takes down one request, and which worker's or API key's it was, by an id.

        Headers and query are left out: they may hold secrets.
        """
        self._requests.labels(verb, route, str(status)).inc()
        self._seconds.labels(verb, route).observe(seconds)
        log = _log.debug if route in _PROBES else _log.info
        log(
            "request",
            method=verb,
            route=route,
            path=path,
            status=status,
            milliseconds=round(seconds * 1_000, 2),
            **({"worker": worker} if worker else {}),
            **({"api_key": api_key} if api_key else {}),
        )
