"""S2 on what reads and writes memory in a sandbox's directory: it may be anything at any moment."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from services.hands.memory import exchange, placing, records, tree
from tests.doubles.memory_world import MemoryWorld, Sandbox, memory_world

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTS_OWN = "of the host alone"
ROUNDS = 20
# In another process, as in a sandbox: threads of one take turns.
SWAP = """\
import ctypes, sys
libc = ctypes.CDLL(None)
names = [name.encode() for name in sys.argv[1:]]
sys.stdout.write("+")
sys.stdout.flush()
while True:
    for one, other in zip(names[::2], names[1::2]):
        libc.renameat2(-100, one, -100, other, 2)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MemoryWorld]:
    async with memory_world(tmp_path_factory.mktemp("registry")) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(world: MemoryWorld, tmp_path: Path) -> Sandbox:
    made = Sandbox(world, tmp_path / "volume", await world.registry.store())
    await made.fresh()
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of the host's."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "a").write_text(HOSTS_OWN)
    return place


@contextmanager
def swapping(*swaps: tuple[Path, Path]) -> Iterator[None]:
    """Has each name be what it is and a link to its target by turns, in single steps."""
    names = []
    for path, target in swaps:
        link = path.with_name(f"link-{path.name}")
        link.symlink_to(target)
        names += [str(path), str(link)]
    command = [sys.executable, "-I", "-S", "-c", SWAP, *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"+"
            yield
        finally:
            process.kill()


async def test_links_lead_nowhere(world: MemoryWorld, sandbox: Sandbox, outside: Path) -> None:
    (sandbox.memory / "file").symlink_to(outside / "a")
    (sandbox.memory / "directory").symlink_to(outside)
    told = await sandbox.stored()
    assert sorted(one.partition(" is not")[0] for one in told) == [
        "! /mnt/memory/notes/directory",
        "! /mnt/memory/notes/file",
    ]
    assert await world.has(sandbox.store_id) == {}
    await world.write(sandbox.store_id, "/file", "stored")
    await world.write(sandbox.store_id, "/directory/a", "stored")
    told = await sandbox.fresh()
    assert len(told) == 2
    assert all("what was there in its place" in one or "yours is at" in one for one in told)
    assert sandbox.files() == {"/directory/a": "stored", "/file": "stored"}
    assert {path.name for path in outside.iterdir()} == {"a"}
    assert (outside / "a").read_text() == HOSTS_OWN


async def test_what_is_no_file_neither_blocks_nor_is_stored(
    world: MemoryWorld, sandbox: Sandbox
) -> None:
    os.mkfifo(sandbox.memory / "pipe")
    directory = os.open(sandbox.memory, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{directory}/socket")
    os.close(directory)
    with (sandbox.memory / "giant").open("wb") as file:
        file.truncate(1 << 40)
    told = await sandbox.stored()
    assert len(told) == 3
    assert await world.has(sandbox.store_id) == {}
    await world.write(sandbox.store_id, "/pipe", "stored")
    [told_of] = await sandbox.fresh()
    assert "yours is at" in told_of
    assert (sandbox.memory / "pipe").read_text() == "stored"


async def test_what_its_owner_may_not_read_is_stored_all_the_same(
    world: MemoryWorld, sandbox: Sandbox
) -> None:
    await world.write(sandbox.store_id, "/d/a", "one")
    await world.write(sandbox.store_id, "/d/b", "two")
    await sandbox.fresh()
    sandbox.write("/d/a", "changed")
    sandbox.write("/d/new", "new")
    for path in ("d/a", "d/new", "d"):
        (sandbox.memory / path).chmod(0)
    sandbox.memory.chmod(0)
    assert await sandbox.stored() == []
    wanted = {"/d/a": "changed", "/d/b": "two", "/d/new": "new"}
    assert await world.has(sandbox.store_id) == wanted
    (sandbox.memory / "d").chmod(0o400)
    sandbox.memory.chmod(0o500)
    await world.write(sandbox.store_id, "/d/a", "by somebody")
    await world.write(sandbox.store_id, "/c", "by somebody")
    assert await sandbox.fresh() == []
    assert sandbox.files() == {**wanted, "/d/a": "by somebody", "/c": "by somebody"}


async def test_more_than_is_looked_at_deletes_nothing(
    world: MemoryWorld, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "MAX_ENTRIES", 100)
    await world.write(sandbox.store_id, "/known", "stays")
    await sandbox.fresh()
    (sandbox.memory / "known").unlink()
    for number in range(10):
        (sandbox.memory / f"{number}").mkdir()
        for below in range(10):
            (sandbox.memory / f"{number}" / f"{below}").mkdir()
    [told] = await sandbox.stored()
    assert told.startswith("! /mnt/memory/notes is not stored: ")
    assert await sandbox.stored() == []
    assert await world.has(sandbox.store_id) == {"/known": "stays"}


async def test_a_link_that_is_swapped_in_is_never_read(
    world: MemoryWorld, sandbox: Sandbox, outside: Path
) -> None:
    (sandbox.memory / "d").mkdir()
    sandbox.write("/d/a", "own")
    sandbox.write("/file", "own")
    with swapping((sandbox.memory / "d", outside), (sandbox.memory / "file", outside / "a")):
        for number in range(ROUNDS):
            with suppress(OSError):
                (sandbox.memory / "d" / "a").touch()
            sandbox.write("/other", f"own {number}")
            await sandbox.stored()
    contents = [one.content for one in await world.registry.history(sandbox.store_id, 1000)]
    assert contents
    assert HOSTS_OWN not in contents


async def test_a_link_that_is_swapped_in_is_never_written_through(
    world: MemoryWorld, sandbox: Sandbox, outside: Path
) -> None:
    memory = await world.write(sandbox.store_id, "/d/a", "first")
    await sandbox.fresh()
    with swapping((sandbox.memory / "d", outside)):
        for number in range(ROUNDS):
            memory = await world.registry.change(memory, content=f"number {number}")
            await sandbox.fresh()
    await world.registry.delete(memory)
    await sandbox.fresh()
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"a": HOSTS_OWN}


async def test_what_is_written_between_look_and_change_is_kept(
    world: MemoryWorld, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.write(sandbox.store_id, "/a", "first")
    await sandbox.fresh()
    await world.write(sandbox.store_id, "/a", "second")

    def late(*names: bytes | int) -> None:
        sandbox.write("/a", "at the last moment")
        exchange.exchange(*names)  # type: ignore[arg-type]

    monkeypatch.setattr(placing, "exchange", late)
    [told] = await sandbox.fresh()
    assert "yours is at /mnt/session/tool_outputs/" in told
    assert sandbox.files() == {"/a": "second"}
    assert sandbox.kept() == ["at the last moment"]
    assert not (sandbox.root / "memory.new").exists()


async def test_what_changes_between_look_and_push_is_looked_at_again(
    world: MemoryWorld, sandbox: Sandbox, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.write("/link", HOSTS_OWN)  # the digest of what it is to lead to
    sandbox.write("/text", "first")
    write = records.write

    def late(root: Path, record: records.Record) -> None:
        if not (sandbox.memory / "link").is_symlink():
            (sandbox.memory / "link").unlink()
            (sandbox.memory / "link").symlink_to(outside / "a")
            sandbox.write("/text", "second")
        write(root, record)

    monkeypatch.setattr(records, "write", late)
    assert [one for one in await sandbox.stored() if "/link is not stored" in one]
    assert await world.has(sandbox.store_id) == {"/text": "second"}


async def test_what_cannot_be_read_is_kept_when_it_is_in_the_way(
    world: MemoryWorld, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.write(sandbox.store_id, "/a", "first")
    await sandbox.fresh()
    await world.write(sandbox.store_id, "/a", "second")

    def leased(*names: bytes | int) -> None:
        sandbox.write("/a", "mine")
        exchange.exchange(*names)  # type: ignore[arg-type]
        monkeypatch.setattr(tree, "content_of", unread)

    def unread(_handle: int) -> None:
        raise BlockingIOError

    monkeypatch.setattr(placing, "exchange", leased)
    [told] = await sandbox.fresh()
    assert "yours is at /mnt/session/tool_outputs/" in told
    assert sandbox.kept() == ["mine"]
    assert not (sandbox.root / "memory.new").exists()


async def test_file_systems_that_cannot_exchange_lose_nothing_either(
    world: MemoryWorld, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(exchange, "_rename", unknown)
    await world.write(sandbox.store_id, "/a/b", "first")
    assert await sandbox.fresh() == []
    await world.write(sandbox.store_id, "/a/b", "second")
    assert await sandbox.fresh() == []
    sandbox.write("/a/b", "mine")
    await world.write(sandbox.store_id, "/a/b", "theirs")
    assert "yours is at" in (await sandbox.stored())[0]
    assert sandbox.files() == {"/a/b": "theirs"}
    assert sandbox.kept() == ["mine"]
