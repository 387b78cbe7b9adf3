from __future__ import annotations

from prometheus_client import Counter

from chassis.telemetry import metrics


def test_registry_shows_the_process_and_what_is_counted():
    registry = metrics.new_registry()
    Counter("drover_probes", "Probes.", registry=registry).inc()
    body, content_type = metrics.render(registry)
    assert content_type.startswith("text/plain")
    assert b"drover_probes_total 1.0" in body
    assert b"process_resident_memory_bytes" in body


def test_registries_are_apart():
    body, _ = metrics.render(metrics.new_registry())
    assert b"drover_probes" not in body
