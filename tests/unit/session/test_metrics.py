from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from services.session.commits import Commits
from services.session.metrics import MeasuredStore, SessionMetrics
from tests.doubles.session_events import idle, message, running, said
from tests.doubles.session_world import World


class Counted:
    """The samples of one registry."""

    def __init__(self):
        self.registry = CollectorRegistry()
        self.metrics = SessionMetrics(self.registry)

    def __getitem__(self, name):
        return self.registry.get_sample_value(f"drover_session_{name}")


class GatedStore:
    """Writes that are acknowledged together, once the gate opens."""

    def __init__(self):
        self.gate = asyncio.Event()

    async def read(self, fn):
        return fn(None)

    def submit(self, fn, *, about):
        async def write():
            await self.gate.wait()
            return fn(None)

        return asyncio.ensure_future(write())


def refuse(_tx):
    raise DroverError(Reason.NOT_FOUND, "none")


async def test_what_is_committed_is_counted():
    counted, world = Counted(), World(message())
    generation = world.open()
    world.append(generation, running(), said("hi"), idle(), take=lease_pb2.TAKE_INPUT_NEXT)
    world.accept(message())
    for news in world.news:
        counted.metrics.hear(news)
    assert counted["events_total"] == 4
    assert counted["inputs_total"] == 1
    assert counted["wakes_total"] == 1
    assert counted["leases_lost_total"] == 0
    world.abandon(generation)
    counted.metrics.hear(world.news[-1])
    assert counted["leases_lost_total"] == 1
    assert counted["wakes_total"] == 2


async def test_writes_are_timed_and_those_acknowledged_together_are_a_group():
    counted, inner = Counted(), GatedStore()
    store = MeasuredStore(inner, counted.metrics)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(store.write(lambda _tx: None))
        await asyncio.sleep(0)
        inner.gate.set()
    await store.write(lambda _tx: None)
    await asyncio.sleep(0)
    assert counted["write_seconds_count"] == 4
    assert counted["group_writes_count"] == 2
    assert counted["group_writes_sum"] == 4


async def test_write_that_is_refused_is_timed_and_in_no_group():
    counted = Counted()
    inner = GatedStore()
    inner.gate.set()
    async with Commits(MeasuredStore(inner, counted.metrics), [counted.metrics]) as commits:
        with pytest.raises(DroverError):
            await commits.write(refuse)
    assert counted["write_seconds_count"] == 1
    assert counted["group_writes_count"] == 0


def test_counts_and_gauges_kept_elsewhere_are_shown_as_they_are():
    counted, kept = Counted(), {"polls": 3, "leases": 2}
    counted.metrics.count("polls", "Polls.", lambda: kept["polls"])
    counted.metrics.gauge("leases", "Leases.", lambda: kept["leases"])
    counted.metrics.stuck(2, 1)
    counted.metrics.stuck(1, 0)
    kept["polls"] += 1
    assert (counted["polls_total"], counted["leases"]) == (4, 2)
    assert (counted["stuck"], counted["stuck_found_total"]) == (1, 1)
