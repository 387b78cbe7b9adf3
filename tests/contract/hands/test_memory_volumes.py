"""The directories of memory stores, and what becomes of the volumes that they are in."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from services.hands.backends.port import Volume
from services.hands.domain.memory.known import Scan
from services.hands.memory import records, tree
from services.hands.memory.attendant import MemoryDirectories
from services.hands.workspace import Workspaces
from tests.doubles.memory_world import OWNER, MemoryWorld, Sandbox, Watched, memory_world

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MemoryWorld]:
    async with memory_world(tmp_path_factory.mktemp("registry")) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def store_id(world: MemoryWorld) -> str:
    return await world.registry.store()


@pytest.fixture
def sandbox(world: MemoryWorld, store_id: str, tmp_path: Path) -> Sandbox:
    return Sandbox(world, tmp_path / "sesn_1", store_id)


def put_another(sandbox: Sandbox) -> None:
    """Has a new volume in the place of a sandbox's, as when it is restored."""
    shutil.rmtree(sandbox.root)
    Sandbox(sandbox.world, sandbox.root, sandbox.store_id)


async def test_a_directory_that_is_gone_is_filled_anew_and_deletes_nothing(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a", "one")
    await sandbox.fresh()
    (sandbox.memory / "a").unlink()
    sandbox.memory.rmdir()
    sandbox.restart()
    assert await sandbox.fresh() == []
    assert await world.has(store_id) == sandbox.files() == {"/a": "one"}


async def test_a_volume_that_is_being_deleted_deletes_no_memories(
    world: MemoryWorld, store_id: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.write(store_id, "/a", "one")
    await sandbox.fresh()
    scan = tree.scan

    def meanwhile(root: int) -> Scan:
        gone = sandbox.root.rename(sandbox.root.with_suffix(".gone"))
        shutil.rmtree(gone)
        return scan(root)

    monkeypatch.setattr(tree, "scan", meanwhile)
    await sandbox.stored()
    assert await world.has(store_id) == {"/a": "one"}


async def test_a_volume_that_was_put_in_the_place_of_another_is_filled_anew(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a", "one")
    await sandbox.fresh()
    put_another(sandbox)
    await sandbox.mirror.take_over(Volume(sandbox.root, OWNER))
    assert await sandbox.fresh() == []
    assert await world.has(store_id) == sandbox.files() == {"/a": "one"}


async def test_what_is_known_of_a_volume_is_not_held_against_the_one_in_its_place(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a", "one")
    await sandbox.fresh()
    put_another(sandbox)
    assert (await sandbox.stored())[0].startswith("! The directories of memory could not be")
    await sandbox.mirror.tick()
    assert await world.has(store_id) == sandbox.files() == {"/a": "one"}
    put_another(sandbox)
    await world.write(store_id, "/b", "two")
    await sandbox.fresh()  # notes nothing of the one in the other
    await sandbox.stored()
    await sandbox.fresh()
    assert await world.has(store_id) == sandbox.files() == {"/a": "one", "/b": "two"}


@pytest.mark.parametrize("read_only", [False, True])
async def test_what_a_registry_restored_from_an_older_database_has_lost_is_stored_again(
    world: MemoryWorld, store_id: str, tmp_path: Path, *, read_only: bool
) -> None:
    sandbox = Sandbox(world, tmp_path / "sesn_1", store_id, read_only=read_only)
    await world.write(store_id, "/a", "one")
    await world.write(store_id, "/b", "two")
    await sandbox.fresh()
    await world.delete(store_id, "/b")  # it never had it
    record = records.read(sandbox.root)
    state = record.stores["notes"]
    state.revision += 1000
    state.memories["/b"] = replace(state.memories["/b"], memory_id="mem_lost")
    records.write(sandbox.root, record)
    sandbox.restart()
    assert await sandbox.fresh() == []
    wanted = {"/a": "one"} if read_only else {"/a": "one", "/b": "two"}
    assert await world.has(store_id) == sandbox.files() == wanted


async def test_what_is_left_of_a_hand_goes_with_it(
    world: MemoryWorld, store_id: str, tmp_path: Path
) -> None:
    workspaces = Workspaces(tmp_path, privileged=OWNER is not None)
    await workspaces.start()
    sandbox = Sandbox(world, tmp_path / "workspaces" / "sesn_1@one", store_id)
    await sandbox.fresh()
    sandbox.write("/late", "by a command that went on")
    client = Watched(world.client)
    client.cut = True
    async with asyncio.TaskGroup() as tasks:
        memory = MemoryDirectories(client, workspaces, tasks)
        await memory.start()
        await memory.close()
        await workspaces.purge("sesn_1@one")
        await memory.purged("sesn_1", "one")
        Sandbox(world, sandbox.root, store_id)  # of another hand of that name
        client.cut = False
        asked = len(client.asked)
        memory.tend()
        await memory.close()
    assert len(client.asked) == asked
    assert await world.has(store_id) == {}


async def test_what_a_dead_process_left_is_stored_by_the_next_without_a_call(
    world: MemoryWorld, store_id: str, tmp_path: Path
) -> None:
    workspaces = Workspaces(tmp_path, privileged=OWNER is not None)
    await workspaces.start()
    sandbox = Sandbox(world, tmp_path / "workspaces" / "sesn_1", store_id)
    idle = Sandbox(world, tmp_path / "workspaces" / "sesn_2", await world.registry.store())
    for one in (sandbox, idle):
        await one.fresh()
        await one.stored()
    await idle.mirror.close()
    sandbox.write("/late", "by a command that went on")
    idle.write("/ignored", "nothing can have written here")
    for _ in range(2):  # the second has nothing to do
        client = Watched(world.client)
        async with asyncio.TaskGroup() as tasks:
            memory = MemoryDirectories(client, workspaces, tasks)
            await memory.start()
            await memory.close()
    assert client.asked == []
    assert await world.has(store_id) == {"/late": "by a command that went on"}
    assert (await world.history(store_id))[-1] == ("created", "/late", "sesn_1")
    assert await world.has(idle.store_id) == {}


@pytest.mark.skipif(OWNER is None, reason="volumes have users of their own only as root")
async def test_directory_that_a_dead_process_has_just_made_is_the_sandboxs_all_the_same(
    world: MemoryWorld, tmp_path: Path
) -> None:
    sandbox = Sandbox(world, tmp_path / "workspaces" / "sesn_1", await world.registry.store())
    os.chown(sandbox.root, OWNER or 0, OWNER or 0)
    os.chown(sandbox.memory, 0, 0)
    workspaces = Workspaces(tmp_path, privileged=True)
    volume = workspaces.find("sesn_1")
    assert volume is not None
    await workspaces.complete(volume, ["notes"])
    assert sandbox.memory.stat().st_uid == OWNER
    os.chown(sandbox.memory, 0, 0)
    await sandbox.fresh()
    assert sandbox.memory.stat().st_uid == OWNER
