"""Several follow a call, come late and leave early."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import VERDICT_OUTCOME_UNKNOWN, ExecuteResponse
from services.hands.domain.printed import Chunk
from services.hands.following import follow
from tests.doubles.hands_backend import ScriptedSandbox
from tests.doubles.hands_waiting import eventually
from tests.unit.hands.conftest import World

Update = Chunk | ExecuteResponse


async def updates(world: World, generation: int = 1) -> AsyncGenerator[Update]:
    given = ("sesn_1", "c1", generation, "bash", json.dumps({"command": "x"}))
    asked = await world.executor.ask(*given)
    assert not isinstance(asked, ExecuteResponse)
    async for update in follow(asked):
        yield update


async def every(world: World) -> list[Update]:
    return [update async for update in updates(world)]


async def begun(world: World) -> tuple[ScriptedSandbox, int]:
    """The sandbox, and the number of the call that it was told to run."""
    await eventually(lambda: world.backend.launched)
    sandbox = world.backend.launched[0]
    async with asyncio.timeout(30):
        return sandbox, (await sandbox.frames.get())["id"]


async def told(sandbox: ScriptedSandbox) -> bool:
    """Whether the sandbox is to tell what the command prints."""
    async with asyncio.timeout(30):
        frame = await sandbox.frames.get()
    assert frame["type"] == "follow"
    return bool(frame["on"])


def prints(sandbox: ScriptedSandbox, number: int, text: str) -> None:
    sandbox.send({"type": "output", "id": number, "text": text, "dropped": 0})


async def test_call_that_nobody_follows_is_told_of_no_output(world: World) -> None:
    given = ("sesn_1", "c1", 1, "bash", '{"command":"x"}')
    asked = asyncio.create_task(world.executor.execute(*given))
    sandbox, number = await begun(world)
    sandbox.answer({"id": number})
    await asked
    assert sandbox.frames.empty()


async def test_followers_come_and_go_and_the_call_runs_once(world: World) -> None:
    first = asyncio.create_task(every(world))
    sandbox, number = await begun(world)
    assert await told(sandbox)
    prints(sandbox, number, "one ")
    second = updates(world)
    assert await anext(second) == Chunk("one ")
    assert await told(sandbox)
    prints(sandbox, number, "two")
    assert await anext(second) == Chunk("two")
    await second.aclose()
    assert await told(sandbox)
    sandbox.answer({"id": number}, "one two")
    *chunks, result = await first
    assert chunks == [Chunk("one "), Chunk("two")]
    assert isinstance(result, ExecuteResponse)
    assert result == world.journal.calls["sesn_1", "c1"].result


async def test_output_stops_being_told_when_the_last_follower_leaves(world: World) -> None:
    follower = updates(world)
    first = asyncio.ensure_future(anext(follower))
    sandbox, number = await begun(world)
    assert await told(sandbox)
    prints(sandbox, number, "a")
    assert await first == Chunk("a")
    other = updates(world)
    assert await anext(other) == Chunk("a")  # though nothing more is printed
    assert await told(sandbox)
    await other.aclose()
    assert await told(sandbox)
    await follower.aclose()
    assert not await told(sandbox)
    prints(sandbox, number, "b")  # it was on its way
    later = asyncio.create_task(every(world))
    assert await told(sandbox)
    sandbox.answer({"id": number}, "ab")
    assert (await later)[0] in {Chunk("ab"), Chunk("a")}


async def test_recorded_call_answers_its_result_alone(world: World) -> None:
    once = asyncio.create_task(every(world))
    sandbox, number = await begun(world)
    sandbox.answer({"id": number}, "done")
    await once
    (again,) = await every(world)
    assert isinstance(again, ExecuteResponse)
    assert again.replayed


async def test_followers_are_told_when_the_sandbox_dies(world: World) -> None:
    following = asyncio.create_task(every(world))
    sandbox, number = await begun(world)
    assert await told(sandbox)
    prints(sandbox, number, "last words")
    sandbox.die()
    chunk, result = await following
    assert chunk == Chunk("last words")
    assert isinstance(result, ExecuteResponse)
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN


async def test_older_generation_follows_nothing(world: World) -> None:
    following = asyncio.create_task(every(world))
    sandbox, number = await begun(world)
    with pytest.raises(DroverError) as refused:
        await anext(updates(world, 0))
    assert refused.value.reason is Reason.LEASE_LOST
    sandbox.answer({"id": number})
    await following
