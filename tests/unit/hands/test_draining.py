"""Hands that are told to stop: what is under way may end, and what has not begun is asked again."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import VERDICT_COMPLETED, VERDICT_OUTCOME_UNKNOWN
from tests.unit.hands.conftest import World
from tests.unit.hands.test_executor import SESSION, ask, next_call, settled, text


async def test_call_under_way_ends_and_no_other_is_taken(world: World) -> None:
    asked = ask(world)
    call = await next_call(world)
    draining = asyncio.create_task(world.executor.drain(10))
    await settled()
    with pytest.raises(DroverError) as refusal:
        await ask(world, "c2")
    assert refusal.value.reason is Reason.UNAVAILABLE
    assert (SESSION, "c2") not in world.journal.calls
    again = ask(world)  # of the one under way: it is waited for
    world.backend.launched[0].answer(call, "out")
    await draining
    assert text(await asked) == text(await again) == "out"


async def test_call_that_does_not_end_in_time_is_of_unknown_outcome_for_ever(world: World) -> None:
    asked = ask(world)
    await next_call(world)
    await world.executor.drain(0)
    await world.restart()
    assert (await asked).verdict == VERDICT_OUTCOME_UNKNOWN
    again = await ask(world)
    assert (again.verdict, again.replayed) == (VERDICT_OUTCOME_UNKNOWN, True)


async def test_command_that_waits_behind_another_is_run_by_the_next_process(world: World) -> None:
    first, second = ask(world), ask(world, "c2")
    await next_call(world)
    await settled()
    await world.executor.drain(0)
    await world.restart()
    assert (await first).verdict == VERDICT_OUTCOME_UNKNOWN
    with pytest.raises(DroverError) as refusal:
        await second
    assert refusal.value.reason is Reason.UNAVAILABLE
    again = ask(world, "c2")
    call = await next_call(world, 1)
    world.backend.launched[1].answer(call, "ran")
    assert (await again).verdict == VERDICT_COMPLETED


async def test_reading_whose_sandbox_ends_is_done_by_the_next_process(world: World) -> None:
    asked = ask(world, tool="read")
    await next_call(world)
    await world.executor.drain(0)
    await world.restart()
    with pytest.raises(DroverError) as refusal:
        await asked
    assert refusal.value.reason is Reason.UNAVAILABLE
    again = ask(world, tool="read")
    call = await next_call(world, 1)
    world.backend.launched[1].answer(call, "content")
    assert text(await again) == "content"
