"""Prometheus metrics: one registry per process, handed to whatever counts, and its text form."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest, start_http_server

from chassis.errors import CannotStartError

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Seconds that latencies are sorted by."""


def new_registry() -> CollectorRegistry:
    """A registry with the process's own metrics: CPU, memory, open files, garbage collection."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


async def exposed(listen: str, stack: AsyncExitStack) -> CollectorRegistry:
    """A new registry, to be scraped at `listen` until `stack` is left; nowhere if that is empty.

    It answers in a thread of its own, also while the event loop is busy. Raises
    `CannotStartError` for an address that cannot be listened on.
    """
    registry, (host, _, port) = new_registry(), listen.rpartition(":")
    if listen:
        address = int(port), host.strip("[]")
        try:
            server, _ = await asyncio.to_thread(start_http_server, *address, registry=registry)
        except OSError as error:
            msg = (
                f"metrics cannot be served at {listen} ({error.strerror}): "
                "DROVER_METRICS_LISTEN names another address"
            )
            raise CannotStartError(msg) from error
        stack.callback(server.server_close)
        stack.push_async_callback(asyncio.to_thread, server.shutdown)
    return registry


def render(registry: CollectorRegistry) -> tuple[bytes, str]:
    """Body and content type of the answer to a scrape."""
    return generate_latest(registry), CONTENT_TYPE_LATEST
