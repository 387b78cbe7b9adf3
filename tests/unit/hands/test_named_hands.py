"""Several hands of one session, each with a sandbox and files of its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from tests.doubles.hands_waiting import eventually
from tests.unit.hands.conftest import World

SESSION = "sesn_1"


def ask(
    world: World, name: str, call_id: str, tool: str = "bash", **given: Any
) -> asyncio.Task[ExecuteResponse]:
    given = given or {"command": "x"}
    execute = world.executor.execute(SESSION, call_id, 1, tool, json.dumps(given), name=name)
    return asyncio.create_task(execute)


async def answered(world: World, name: str, call_id: str, number: int) -> None:
    asked = ask(world, name, call_id)
    await eventually(lambda: len(world.backend.launched) > number)
    sandbox = world.backend.launched[number]
    sandbox.answer(await sandbox.frames.get())
    await asked


async def test_each_name_has_a_sandbox_and_a_volume_of_its_own(world: World) -> None:
    own, existing = await world.executor.provision(SESSION, 1)
    other, _ = await world.executor.provision(SESSION, 1, name="build")
    again, there = await world.executor.provision(SESSION, 1, name="build")
    assert own.id != other.id == again.id
    assert (existing, there) == (False, True)
    roots = [sandbox.spec.volume.root.name for sandbox in world.backend.launched]
    assert roots == ["sesn_1", "sesn_1@build"]


async def test_commands_in_one_hand_do_not_wait_for_those_in_another(world: World) -> None:
    first, second = ask(world, "", "c1"), ask(world, "build", "c2")
    await eventually(lambda: len(world.backend.launched) == 2)
    for sandbox in world.backend.launched:
        async with asyncio.timeout(30):
            sandbox.answer(await sandbox.frames.get())
    await asyncio.gather(first, second)


async def test_brains_and_threads_share_a_hand_and_its_one_shell(world: World) -> None:
    """Whoever asks: two commands wait for each other, tools on files do not."""
    first, second = ask(world, "build", "c1"), ask(world, "build", "c2")
    third = ask(world, "build", "c3", "read", file_path="x")
    await eventually(lambda: world.backend.launched)
    (sandbox,) = world.backend.launched
    calls = [await sandbox.frames.get(), await sandbox.frames.get()]
    assert sorted(call["tool"] for call in calls) == ["bash", "read"]
    assert sandbox.frames.empty()
    for call in calls:
        sandbox.answer(call)
    sandbox.answer(await sandbox.frames.get())
    await asyncio.gather(first, second, third)


async def test_release_of_one_hand_leaves_the_others_and_their_calls(world: World) -> None:
    await answered(world, "", "c0", 0)
    running = ask(world, "", "c1")
    call = await world.backend.launched[0].frames.get()
    await world.executor.provision(SESSION, 1, name="build")
    await world.executor.release(SESSION, "build")
    assert world.backend.launched[1].killed.is_set()
    world.backend.launched[0].answer(call, "still")
    assert (await running).content[0].text.text == "still"


async def test_release_of_all_takes_every_hand_and_purge_every_file(world: World) -> None:
    for name in ("", "build", "test"):
        await world.executor.provision(SESSION, 1, name=name)
    await world.executor.provision("sesn_10", 1)
    await world.executor.release(SESSION)
    killed = [sandbox.killed.is_set() for sandbox in world.backend.launched]
    assert killed == [True, True, True, False]
    await world.executor.purge(SESSION, 1)
    assert [path.name for path in (world.directory / "workspaces").iterdir()] == ["sesn_10"]


async def test_purge_of_one_hand_deletes_its_files_alone(world: World) -> None:
    for name in ("", "build"):
        await world.executor.provision(SESSION, 1, name=name)
    await world.executor.release(SESSION, "build")
    await world.executor.purge_hand(SESSION, "build")
    assert [path.name for path in (world.directory / "workspaces").iterdir()] == [SESSION]


async def test_call_id_is_one_call_in_whichever_hand_it_is_asked_for(world: World) -> None:
    await answered(world, "build", "c1", 0)
    replayed = await ask(world, "other", "c1")
    assert replayed.replayed
    assert len(world.backend.launched) == 1
