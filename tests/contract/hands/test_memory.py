"""Memory stores in real sandboxes: directories that follow them both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from chassis.ids import new_id
from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.domain.mounts import MountedStore, Mounts
from services.hands.domain.recipe import Recipe
from services.hands.memory.attendant import MemoryDirectories
from tests.doubles.hands_stack import HandsStack, Sandboxes, chosen, text
from tests.doubles.memory_world import MemoryWorld, Watched, memory_world
from tests.doubles.registry_memory import HOME

pytestmark = pytest.mark.asyncio(loop_scope="module")


# How a directory follows its store is the same for every kind of sandbox.
local_alone = pytest.mark.parametrize("sessions", ["local"], indirect=True)


class Sessions:
    """Sandboxes of sessions that have one store to write to and one to read."""

    def __init__(self, hands: HandsStack, world: MemoryWorld, client: Watched) -> None:
        self.hands = hands
        self.world = world
        self.client = client
        self.mounts = Mounts()

    async def run(
        self, session_id: str, tool: str, *, name: str = "", **given: object
    ) -> ExecuteResponse:
        return await self.hands.executor.execute(
            *(session_id, new_id("sevt"), 1, tool, json.dumps(given)),
            recipe=Recipe(stores=self.mounts.writable),
            given=self.mounts,
            name=name,
        )

    async def bash(self, session_id: str, command: str, name: str = "") -> str:
        result = await self.run(session_id, "bash", command=command, name=name)
        assert not result.is_error, text(result)
        return text(result)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=("local", "docker"))
async def sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Sessions]:
    sandboxes: Sandboxes = chosen(request)
    directory = tmp_path_factory.mktemp("hands")
    async with memory_world(directory) as world:
        client = Watched(world.client)
        async with sandboxes.stack(directory, memories=client) as hands:
            yield Sessions(hands, world, client)


@pytest_asyncio.fixture(loop_scope="module")
async def notes(sessions: Sessions) -> AsyncIterator[str]:
    """The id of the store to write to; sandboxes are released afterwards."""
    registry = sessions.world.registry
    notes, facts = await registry.store(), await registry.store()
    await sessions.world.write(facts, "/known.md", "to be read")
    sessions.mounts = Mounts(
        HOME,
        stores=(
            MountedStore(notes, "notes"),
            MountedStore(facts, "facts", read_only=True),
        ),
    )
    sessions.client.cut = False
    yield notes
    for session_id in ("sesn_1", "sesn_2"):
        await sessions.hands.executor.release(session_id)
        await sessions.hands.executor.purge(session_id, 0)


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 20.0) -> None:
    """Waits for something to come about."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.02)


async def test_one_session_reads_what_another_has_noted(sessions: Sessions, notes: str) -> None:
    await sessions.world.write(notes, "/old/a.md", "from before")
    assert "from before" in await sessions.bash("sesn_1", "cat /mnt/memory/notes/old/a.md")
    result = await sessions.run(
        "sesn_1", "write", file_path="/mnt/memory/notes/b.md", content="noted"
    )
    assert not result.is_error
    assert await sessions.world.has(notes) == {"/old/a.md": "from before", "/b.md": "noted"}
    await sessions.bash("sesn_1", "cd /mnt/memory/notes && mv old/a.md c.md && rm b.md")
    listed = await sessions.bash("sesn_2", "cd /mnt/memory && find . -type f | sort")
    assert "./facts/known.md\n./notes/c.md" in listed
    history = await sessions.world.history(notes)
    assert [who for _, _, who in history] == ["apikey_other", *["sesn_1"] * 3]


async def test_what_is_read_only_cannot_be_written(sessions: Sessions, notes: str) -> None:
    for place in ("/mnt/memory/facts/known.md", "/mnt/memory/facts/new.md", "/mnt/memory/new.md"):
        result = await sessions.run("sesn_1", "bash", command=f"echo x > {place}")
        assert result.is_error
        assert "Read-only file system" in text(result)
    result = await sessions.run("sesn_1", "bash", command="mv /mnt/memory/notes /mnt/memory/other")
    assert result.is_error
    assert await sessions.world.has(notes) == {}


@local_alone
async def test_what_is_not_stored_makes_the_call_an_error_once(
    sessions: Sessions, notes: str
) -> None:
    fill = "head -c 102401 /dev/zero | tr '\\0' x > /mnt/memory/notes/big.md"
    result = await sessions.run("sesn_1", "bash", command=f"{fill}; echo done")
    assert result.is_error
    assert text(result).startswith("done")
    assert "[memory] /mnt/memory/notes/big.md is not stored: it is larger than" in text(result)
    assert "[memory]" not in await sessions.bash("sesn_1", "wc -c /mnt/memory/notes/big.md")
    assert await sessions.world.has(notes) == {}


@local_alone
async def test_a_call_that_runs_sees_changes_and_its_own_are_seen(
    sessions: Sessions, notes: str
) -> None:
    command = (
        "cd /mnt/memory/notes; echo asked > question;"
        " until [ -e answer ]; do sleep 0.05; done; cat answer"
    )
    call = asyncio.create_task(sessions.bash("sesn_1", command))

    async def asked() -> bool:
        return "/question" in await sessions.world.has(notes)

    await until(asked, "what the call wrote was not stored while it ran")
    await sessions.world.write(notes, "/answer", "told")
    async with asyncio.timeout(20):
        assert "told" in await call


@local_alone
async def test_hands_of_one_session_see_each_other(sessions: Sessions, notes: str) -> None:
    await sessions.bash("sesn_1", "echo hello > /mnt/memory/notes/a", name="other")
    assert "hello" in await sessions.bash("sesn_1", "cat /mnt/memory/notes/a")
    assert await sessions.world.has(notes) == {"/a": "hello\n"}


@local_alone
async def test_what_a_sandbox_wrote_that_died_is_stored_and_told_next(
    sessions: Sessions, notes: str
) -> None:
    await sessions.bash("sesn_1", "true")
    call = asyncio.create_task(
        sessions.run(
            "sesn_1", "bash", command="cd /mnt/memory/notes; ln -s / link; echo x > a; sleep 60"
        )
    )

    async def stored() -> bool:
        return "/a" in await sessions.world.has(notes)

    await until(stored, "it was not stored")
    hand = sessions.hands.pool.live()["sesn_1"]
    await hand.kill("the test ends it")
    assert (await call).is_error
    result = await sessions.run("sesn_1", "bash", command="cat /mnt/memory/notes/a")
    assert result.is_error
    assert "link is not stored: it is a symbolic link" in text(result)


@local_alone
async def test_what_is_left_behind_is_stored_when_the_session_lets_go(
    sessions: Sessions, notes: str
) -> None:
    wait = "until [ -e /workspace/%s ]; do sleep 0.05; done"
    write = "echo x > /mnt/memory/notes/late; touch /workspace/written"
    await sessions.bash("sesn_1", f"({wait % 'go'}; {write}) &")
    sessions.client.cut = True
    command = f"touch /workspace/go; {wait % 'written'}"
    result = await sessions.run("sesn_1", "bash", command=command)
    assert "not stored yet: /mnt/memory/notes/late" in text(result)
    sessions.client.cut = False
    await sessions.hands.executor.release("sesn_1")
    assert await sessions.world.has(notes) == {"/late": "x\n"}


@local_alone
async def test_what_goes_on_behind_calls_is_stored(sessions: Sessions, notes: str) -> None:
    await sessions.bash(
        "sesn_1",
        "(until [ -e /workspace/go ]; do sleep 0.02; done; "
        "echo x > /mnt/memory/notes/later) & sleep 0; touch /workspace/go",
    )
    [memory] = [one for one in sessions.hands.pool.attendants if isinstance(one, MemoryDirectories)]

    async def stored() -> bool:
        memory.tend()
        return "/later" in await sessions.world.has(notes)

    await until(stored, "it was not stored")
