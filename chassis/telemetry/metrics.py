"""Prometheus metrics: one registry per process, handed to whatever counts, and its text form."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


def new_registry() -> CollectorRegistry:
    """A registry with the process's own metrics: CPU, memory, open files, garbage collection."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def render(registry: CollectorRegistry) -> tuple[bytes, str]:
    """Body and content type of the answer to a scrape."""
    return generate_latest(registry), CONTENT_TYPE_LATEST
