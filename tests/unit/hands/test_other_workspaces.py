"""A session is its own workspace's alone, whether the process knows of it or its journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from chassis.context import CallContext, call_context
from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import VERDICT_COMPLETED
from tests.unit.hands.test_executor import SESSION, ask, next_call, settled

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from services.hands.executor import Executor
    from tests.unit.hands.conftest import World

OTHERS = CallContext("wrkspc_other")


async def refusals(executor: Executor) -> set[Reason]:
    """How another workspace is refused, with whatever lease."""
    found = set()
    for generation in (0, 1, 9):
        attempts: list[Awaitable[object]] = [
            executor.provision(SESSION, generation),
            executor.execute(SESSION, "c1", generation, "bash", '{"command": "x"}'),
            executor.execute(SESSION, "c9", generation, "bash", "not even JSON"),
            executor.cancel(SESSION, generation, ["c1"]),
            executor.fence(SESSION, generation),
        ]
        for attempt in attempts:
            with call_context(OTHERS), pytest.raises(DroverError) as refused:
                await attempt
            found.add(refused.value.reason)
    return found


async def test_another_workspace_meets_no_session_whatever_its_lease(world: World) -> None:
    asked = ask(world)
    call = await next_call(world)
    assert await refusals(world.executor) == {Reason.NOT_FOUND}
    world.backend.launched[0].answer(call, "out")
    assert (await asked).verdict == VERDICT_COMPLETED
    assert await refusals(world.executor) == {Reason.NOT_FOUND}
    assert len(world.backend.launched) == 1


async def test_a_process_that_was_started_since_knows_whose_a_session_is(world: World) -> None:
    await world.executor.fence(SESSION, 1)
    await world.restart()
    assert await refusals(world.executor) == {Reason.NOT_FOUND}
    with call_context(OTHERS):
        assert not await world.executor.serves(SESSION)
    assert await world.executor.serves(SESSION)
    assert world.backend.launched == []


async def test_a_call_of_anothers_is_not_joined_while_its_first_record_is_on_its_way(
    world: World,
) -> None:
    mine = ask(world)
    await settled()
    with call_context(OTHERS):
        theirs = ask(world, generation=1)
    await asyncio.wait([theirs])
    assert isinstance(error := theirs.exception(), DroverError)
    assert error.reason is Reason.NOT_FOUND
    call = await next_call(world)
    world.backend.launched[0].answer(call, "out")
    assert (await mine).verdict == VERDICT_COMPLETED


async def test_a_session_that_was_forgotten_is_whose_it_is_next(world: World) -> None:
    await world.executor.fence(SESSION, 1)
    await world.executor.end(SESSION, 1)
    await world.executor.purge(SESSION, 1)
    with call_context(OTHERS):
        assert await world.executor.serves(SESSION)
        await world.executor.fence(SESSION, 3)
    assert not await world.executor.serves(SESSION)
