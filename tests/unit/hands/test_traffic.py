"""What is counted of what goes into hands and out of them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from chassis.errors import DroverError, Reason
from services.hands.traffic import CountedMemories, Traffic


class Memories:
    """Stores that answer, or fail."""

    failure: DroverError | None = None

    async def follow(self, stores):
        return list(stores)

    async def delete(self, store_id, memory_id, expected, session_id):
        if self.failure is not None:
            raise self.failure


async def test_calls_of_the_memory_stores_are_counted_by_what_came_of_them() -> None:
    registry, stores = CollectorRegistry(), Memories()
    counted = CountedMemories(stores, Traffic(registry))
    assert await counted.follow([("memstore_1", 0)]) == [("memstore_1", 0)]
    for reason in (Reason.CONFLICT, Reason.UNAVAILABLE):
        stores.failure = DroverError(reason, "no")
        with pytest.raises(DroverError, match="no"):
            await counted.delete("memstore_1", "mem_1", "", "sesn_1")
    found = {
        (call, outcome): registry.get_sample_value(
            "drover_hands_memory_calls_total", {"call": call, "outcome": outcome}
        )
        for call, outcome in (("follow", "done"), ("delete", "refused"), ("delete", "away"))
    }
    assert set(found.values()) == {1.0}


def test_what_waits_is_shown_as_it_is_when_it_is_scraped() -> None:
    registry, waiting = CollectorRegistry(), []
    Traffic(registry).waiting("memory", lambda: len(waiting))
    assert registry.get_sample_value("drover_hands_memory_waiting") == 0
    waiting.append("sesn_1")
    assert registry.get_sample_value("drover_hands_memory_waiting") == 1
