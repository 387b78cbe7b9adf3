"""A memory store and a directory, over the wire: what is in the one comes to the other."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from services.hands import boot
from tests.doubles.memory_world import MemoryWorld, Sandbox, memory_world

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MemoryWorld]:
    async with memory_world(tmp_path_factory.mktemp("registry")) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def store_id(world: MemoryWorld) -> str:
    return await world.registry.store()


@pytest.fixture
def make(world: MemoryWorld, store_id: str, tmp_path: Path) -> Callable[..., Sandbox]:
    def made(session_id: str = "sesn_1", **given: bool) -> Sandbox:
        return Sandbox(world, tmp_path / session_id, store_id, session_id=session_id, **given)

    return made


@pytest.fixture
def sandbox(make: Callable[..., Sandbox]) -> Sandbox:
    return make()


async def test_what_the_store_has_is_there_and_what_is_written_is_stored(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a.md", "one")
    await world.write(store_id, "/deep/er/b.md", "zwei ü\n")
    assert await sandbox.fresh() == []
    assert sandbox.files() == {"/a.md": "one", "/deep/er/b.md": "zwei ü\n"}
    sandbox.write("/a.md", "changed")
    sandbox.write("/new/c.md", "")
    (sandbox.memory / "deep/er/b.md").unlink()
    assert await sandbox.stored() == []
    assert await world.has(store_id) == {"/a.md": "changed", "/new/c.md": ""}
    first, *others = (await world.history(store_id))[2:]
    assert first == ("deleted", "/deep/er/b.md", "sesn_1")
    assert sorted(others) == [
        ("created", "/new/c.md", "sesn_1"),
        ("modified", "/a.md", "sesn_1"),
    ]


async def test_a_call_that_touches_nothing_costs_one_request(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a.md", "one")
    await sandbox.fresh()
    await sandbox.stored()
    sandbox.client.asked.clear()
    await sandbox.fresh()
    await sandbox.stored()
    assert sandbox.client.asked == ["follow"]


async def test_changes_and_deletions_of_others_arrive(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    for path in ("/a", "/b", "/d/c"):
        await world.write(store_id, path, path)
    await sandbox.fresh()
    await world.write(store_id, "/a", "other")
    await world.delete(store_id, "/b")
    await world.delete(store_id, "/d/c")
    await world.write(store_id, "/d", "a file where a directory was")
    assert await sandbox.fresh() == []
    assert sandbox.files() == {"/a": "other", "/d": "a file where a directory was"}
    assert await sandbox.stored() == []
    assert len(await world.history(store_id)) == 7


async def test_renamed_files_keep_their_memories(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    before = await world.write(store_id, "/a.md", "text")
    await sandbox.fresh()
    (sandbox.memory / "d").mkdir()
    (sandbox.memory / "a.md").rename(sandbox.memory / "d" / "b.md")
    assert await sandbox.stored() == []
    [after] = (await world.registry.follow(store_id)).memories
    assert (after.id, after.path) == (before.id, "/d/b.md")
    assert (await world.history(store_id))[-1] == ("modified", "/d/b.md", "sesn_1")


async def test_files_become_directories_and_the_reverse(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a", "a file")
    await world.write(store_id, "/d/x", "below")
    await sandbox.fresh()
    (sandbox.memory / "a").unlink()
    sandbox.write("/a/b", "a file")
    (sandbox.memory / "d/x").unlink()
    (sandbox.memory / "d").rmdir()
    sandbox.write("/d", "a file now")
    assert await sandbox.stored() == []
    assert await world.has(store_id) == {"/a/b": "a file", "/d": "a file now"}


async def test_paths_that_others_swap_are_swapped(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    one = await world.write(store_id, "/a", "one")
    two = await world.write(store_id, "/b", "two")
    await sandbox.fresh()
    one = await world.registry.change(one, path="/c")
    await world.registry.change(two, path="/a")
    await world.registry.change(one, path="/b")
    assert await sandbox.fresh() == []
    assert sandbox.files() == {"/a": "two", "/b": "one"}
    assert await sandbox.stored() == []
    assert await world.has(store_id) == {"/a": "two", "/b": "one"}


async def test_of_two_sessions_that_write_one_memory_the_second_learns_it(
    world: MemoryWorld, store_id: str, make: Callable[..., Sandbox]
) -> None:
    await world.write(store_id, "/a.md", "base")
    first, second = make("sesn_1"), make("sesn_2")
    await first.fresh()
    await second.fresh()
    first.write("/a.md", "of the first")
    second.write("/a.md", "of the second")
    assert await first.stored() == []
    [told] = await second.stored()
    assert told.startswith("! /mnt/memory/notes/a.md was changed in the store by somebody else")
    assert "/mnt/session/tool_outputs/memory-notes-a-" in told
    assert await world.has(store_id) == {"/a.md": "of the first"}
    assert second.files() == {"/a.md": "of the first"}
    assert second.kept() == ["of the second"]
    assert await second.stored() == []
    second.write("/a.md", "both")
    assert await second.stored() == []
    assert await first.fresh() == []
    assert first.files() == {"/a.md": "both"}


async def test_two_sessions_that_make_one_memory_do_not_overwrite_each_other(
    world: MemoryWorld, store_id: str, make: Callable[..., Sandbox]
) -> None:
    first, second = make("sesn_1"), make("sesn_2")
    for one in (first, second):
        await one.fresh()
        one.write("/a.md", one.session_id)
    assert await first.stored() == []
    [told] = await second.stored()
    assert "yours is at /mnt/session/tool_outputs/" in told
    assert await world.has(store_id) == {"/a.md": "sesn_1"}
    assert second.kept() == ["sesn_2"]


async def test_a_deletion_of_what_somebody_has_changed_does_not_happen(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a.md", "base")
    await sandbox.fresh()
    await world.write(store_id, "/a.md", "newer")
    (sandbox.memory / "a.md").unlink()
    [told] = await sandbox.stored()
    assert told.startswith("! ")
    assert "The file is back" in told
    assert sandbox.files() == await world.has(store_id) == {"/a.md": "newer"}


async def test_the_first_memory_of_a_store_goes_when_it_is_deleted_at_once(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await sandbox.fresh()
    sandbox.write("/a.md", "one")
    await sandbox.stored()
    await world.delete(store_id, "/a.md")
    assert await sandbox.fresh() == []
    assert sandbox.files() == {}


async def test_a_change_of_what_somebody_has_deleted_is_a_new_memory(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a.md", "base")
    await sandbox.fresh()
    await world.delete(store_id, "/a.md")
    sandbox.write("/a.md", "changed")
    [told] = await sandbox.stored()
    assert "was deleted from the store by somebody else" in told
    assert await world.has(store_id) == {"/a.md": "changed"}
    assert sandbox.files() == {"/a.md": "changed"}


async def test_a_memory_over_the_limit_is_an_error_and_not_cut(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a.md", "base")
    await sandbox.fresh()
    sandbox.write("/a.md", "x" * 102_401)
    sandbox.write("/b.md", "x" * 102_400)
    [told] = await sandbox.stored()
    assert told.startswith("! /mnt/memory/notes/a.md is not stored: it is larger than 102,400")
    assert await world.has(store_id) == {"/a.md": "base", "/b.md": "x" * 102_400}
    assert await sandbox.stored() == []  # once
    sandbox.write("/a.md", "x" * 102_402)
    assert len(await sandbox.stored()) == 1  # for each change
    sandbox.write("/a.md", "shorter")
    assert await sandbox.stored() == []
    assert (await world.has(store_id))["/a.md"] == "shorter"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("latin.txt", "not UTF-8 text"),
        ("a\u0308.md", "Normalization Form C"),
        ("a\u202eb", "a format character, U+202E"),
        ("a\nb", "a control character, U+000A"),
        (os.fsdecode(b"a\xff"), "its name is not UTF-8"),
        ("/".join("abcdefghijklmnopqrstu"), "more than 20 levels"),
    ],
)
async def test_what_is_no_memory_is_told_once(
    world: MemoryWorld, store_id: str, sandbox: Sandbox, name: str, why: str
) -> None:
    await sandbox.fresh()
    sandbox.write(name, b"\xfc" if name == "latin.txt" else b"")
    [told] = await sandbox.stored()
    assert told.startswith("! ")
    assert why in told
    assert told.isprintable()
    assert await sandbox.stored() == []
    assert await world.has(store_id) == {}


async def test_a_full_store_is_told_and_has_room_again(
    world: MemoryWorld,
    store_id: str,
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.registry.store.memory.memories.MAX_MEMORIES", 2)
    for path in ("/a", "/b", "/c"):
        sandbox.write(path, path)
    [told] = await sandbox.fresh()
    assert told.startswith("! ")
    assert "which is the most: delete some first." in told
    stored = await world.has(store_id)
    assert len(stored) == 2
    assert await sandbox.stored() == []
    (sandbox.memory / min(stored).lstrip("/")).unlink()
    assert await sandbox.stored() == []
    assert await world.has(store_id) == sandbox.files()


async def test_an_archived_store_is_read_and_not_written(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a", "one")
    await sandbox.fresh()
    await world.archive(store_id)
    sandbox.write("/a", "two")
    [told] = await sandbox.stored()
    assert told.startswith("! ")
    assert "archived" in told
    [announced] = await sandbox.fresh()
    assert "was archived" in announced
    assert await sandbox.fresh() == await sandbox.stored() == []
    (sandbox.memory / "a").unlink()
    [told] = await sandbox.stored()
    assert "The deletion of /mnt/memory/notes/a is not stored" in told
    assert await world.has(store_id) == {"/a": "one"}


async def test_a_deleted_store_takes_its_files_along(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/d/a", "one")
    await world.write(store_id, "/b", "two")
    await sandbox.fresh()
    sandbox.write("/b", "unsaved")
    await world.discard(store_id)
    [told] = [one for one in await sandbox.fresh() if not one.startswith("!")]
    assert "was deleted" in told
    assert sandbox.files() == {"/b": "unsaved"}
    [told] = await sandbox.stored()
    assert "its memory store was deleted" in told
    assert await sandbox.fresh() == await sandbox.stored() == []


async def test_a_read_only_store_is_not_written(
    world: MemoryWorld, store_id: str, make: Callable[..., Sandbox]
) -> None:
    sandbox = make(read_only=True)
    await world.write(store_id, "/a", "one")
    await sandbox.fresh()
    sandbox.write("/b", "no")
    assert await sandbox.stored() == []
    await world.write(store_id, "/a", "two")
    await sandbox.fresh()
    assert sandbox.files()["/a"] == "two"
    assert await world.has(store_id) == {"/a": "two"}


async def test_what_cannot_be_stored_waits_and_is_told_once(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    sandbox.client.cut = True
    [told] = await sandbox.fresh()
    assert "may be out of date" in told
    sandbox.write("/a", "one")
    [told] = await sandbox.stored()
    assert told.startswith("! ")
    assert "not stored yet: /mnt/memory/notes/a." in told
    assert await sandbox.fresh() == await sandbox.stored() == []
    sandbox.client.cut = False
    [told] = await sandbox.fresh()
    assert "what waited is stored" in told
    assert await world.has(store_id) == {"/a": "one"}
    assert await sandbox.fresh() == []


async def test_a_registry_that_does_not_answer_holds_up_one_call_and_not_the_next(
    world: MemoryWorld, store_id: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sandbox.fresh()
    sandbox.client.asked.clear()
    sandbox.client.hangs = True
    sandbox.write("/a", "one")
    sandbox.write("/b", "two")
    assert len(await sandbox.fresh()) == 1
    assert len(await sandbox.stored()) == 1
    assert await sandbox.fresh() == await sandbox.stored() == []
    assert sandbox.client.asked == ["follow"]
    sandbox.client.hangs = False
    monkeypatch.setattr("services.hands.memory.mirror.Mirror._resting", lambda _: False)
    assert "what waited is stored" in (await sandbox.fresh())[0]
    assert await world.has(store_id) == {"/a": "one", "/b": "two"}


async def test_what_waited_is_stored_by_the_next_process(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/a", "one")
    await world.write(store_id, "/gone", "")
    await sandbox.fresh()
    sandbox.client.cut = True
    sandbox.write("/a", "two")
    (sandbox.memory / "gone").unlink()
    await sandbox.stored()
    sandbox.restart()
    assert await sandbox.fresh() == []
    assert await world.has(store_id) == sandbox.files() == {"/a": "two"}


@pytest.mark.parametrize("operation", ["create", "update", "delete"])
async def test_an_answer_that_was_lost_makes_no_conflict(
    world: MemoryWorld, store_id: str, sandbox: Sandbox, operation: str
) -> None:
    await world.write(store_id, "/a", "one")
    await sandbox.fresh()
    sandbox.client.lost.add(operation)
    if operation == "delete":
        (sandbox.memory / "a").unlink()
    else:
        sandbox.write("/a" if operation == "update" else "/b", "sent")
    [told] = await sandbox.stored()
    assert "not stored yet" in told
    sandbox.restart()
    if operation != "delete":
        sandbox.write("/a" if operation == "update" else "/b", "and changed again")
    assert await sandbox.fresh() == []
    assert await world.has(store_id) == sandbox.files()
    assert sandbox.kept() == []


async def test_without_its_record_a_directory_does_not_overwrite_the_store(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await world.write(store_id, "/same", "same")
    await world.write(store_id, "/a", "one")
    await sandbox.fresh()
    sandbox.client.cut = True
    sandbox.write("/a", "changed, from nobody knows what")
    sandbox.write("/b", "new")
    await sandbox.stored()
    (sandbox.root / "memory.json").unlink()
    sandbox.restart()
    [told] = await sandbox.fresh()
    assert "a was changed in the store by somebody else" in told
    assert await world.has(store_id) == {"/same": "same", "/a": "one", "/b": "new"}
    assert sandbox.kept() == ["changed, from nobody knows what"]


async def test_after_a_crash_of_the_machine_lost_files_are_no_changes(
    world: MemoryWorld, store_id: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/empty", "/gone", "/whole"):
        await world.write(store_id, path, path)
    await sandbox.fresh()
    await sandbox.stored()
    sandbox.write("/empty", "")
    (sandbox.memory / "gone").unlink()
    sandbox.restart()
    monkeypatch.setattr(boot, "boot_id", lambda: "another")
    [told] = await sandbox.fresh()
    assert "/mnt/memory/notes/empty" in told
    assert await world.has(store_id) == sandbox.files()
    assert len(await world.history(store_id)) == 3


async def test_while_a_call_runs_files_that_are_being_written_are_left_alone(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    await sandbox.fresh()
    sandbox.write("/a", "half")
    await sandbox.mirror.tick()
    assert await world.has(store_id) == {}
    sandbox.write("/a", "half, and more")
    await sandbox.mirror.tick()
    assert await world.has(store_id) == {}
    await sandbox.mirror.tick()
    assert await world.has(store_id) == {"/a": "half, and more"}
    await world.write(store_id, "/b", "from elsewhere")
    await sandbox.mirror.tick()
    assert sandbox.files()["/b"] == "from elsewhere"
    for number in range(8):  # it is never at rest
        sandbox.write("/c", f"{number}" * (number + 1))
        await sandbox.mirror.tick()
    assert "/c" in await world.has(store_id)


async def test_a_store_with_more_than_one_answer_has_is_there(
    world: MemoryWorld, store_id: str, sandbox: Sandbox
) -> None:
    wanted = {f"/{number:02}": f"{number:02}" * 50_000 for number in range(45)}
    for path, content in wanted.items():
        await world.registry.add(store_id, path, content)
    assert await sandbox.fresh() == []
    assert sandbox.files() == wanted
