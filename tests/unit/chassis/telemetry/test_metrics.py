from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import httpx2
import pytest
from prometheus_client import Counter

from chassis.errors import CannotStartError
from chassis.telemetry import metrics
from tests.doubles.ports import free_port


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


async def test_registry_is_scraped_where_the_process_is_told_and_nowhere_afterwards():
    port = free_port()
    async with AsyncExitStack() as stack:
        registry = await metrics.exposed(f"127.0.0.1:{port}", stack)
        Counter("drover_probes", "Probes.", registry=registry).inc()
        async with httpx2.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{port}/metrics")
        assert "drover_probes_total 1.0" in answer.text
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_address_that_is_taken_is_refused():
    port = free_port()
    async with AsyncExitStack() as stack:
        await metrics.exposed(f"127.0.0.1:{port}", stack)
        with pytest.raises(CannotStartError, match="in use"):
            await metrics.exposed(f"127.0.0.1:{port}", stack)


async def test_process_without_an_address_counts_and_listens_nowhere():
    async with AsyncExitStack() as stack:
        registry = await metrics.exposed("", stack)
        assert b"process_resident_memory_bytes" in metrics.render(registry)[0]
