"""A hand is there before its fence is durable; nothing that has effects is (docs/adr/0027)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from chassis.errors import DroverError, Reason
from services.hands.domain import fence
from tests.doubles.hands_waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from drover.hands.v1.hands_service_pb2 import ExecuteResponse
    from tests.unit.hands.conftest import World

SESSION = "sesn_1"
COMMAND = json.dumps({"command": "x"})


class Commits:
    """Has a journal commit fences when it is told to, or fail to."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = asyncio.Event()
        self.error: DroverError | None = None
        self.waiting = 0
        self._journal = world.journal
        self._commit = world.journal.fence
        monkeypatch.setattr(world.journal, "fence", self._fence)

    def fail(self) -> None:
        self.error = DroverError(Reason.UNAVAILABLE, "the journal is away")
        self.go.set()

    async def _fence(
        self, session_id: str, generation: int, taken: Callable[[], None] | None = None
    ) -> None:
        fence.advance(self._journal.fences.get(session_id, 0), generation)
        if taken is not None:
            taken()
        self.waiting += 1
        await self.go.wait()
        self.waiting -= 1
        if self.error is not None:
            raise self.error
        await self._commit(session_id, generation)


@pytest.fixture
def commits(world: World, monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(world, monkeypatch)


def execute(world: World, call_id: str, generation: int) -> asyncio.Task[ExecuteResponse]:
    asked = world.executor.execute(SESSION, call_id, generation, "bash", COMMAND)
    return asyncio.create_task(asked)


async def run(world: World, call_id: str, generation: int, number: int = 0) -> ExecuteResponse:
    """Runs a call to its end in the sandbox of that number."""
    asked = execute(world, call_id, generation)
    await eventually(lambda: len(world.backend.launched) > number)
    sandbox = world.backend.launched[number]
    async with asyncio.timeout(30):
        sandbox.answer(await sandbox.frames.get(), "ran")
        return await asked


async def test_hand_is_there_before_its_fence_is_durable(world: World, commits: Commits) -> None:
    hand, existing = await world.executor.provision(SESSION, 1)
    assert (commits.waiting, existing, world.journal.fences) == (1, False, {})
    assert world.pool.live() == {SESSION: hand}
    commits.go.set()
    await eventually(lambda: world.journal.fences == {SESSION: 1})


async def test_generation_that_is_on_its_way_is_written_again_by_whoever_needs_it_durable(
    world: World, commits: Commits
) -> None:
    await world.executor.provision(SESSION, 1)
    needed = asyncio.create_task(world.executor.fence(SESSION, 1))
    await eventually(lambda: commits.waiting == 2)
    assert not needed.done()
    commits.go.set()
    await needed
    assert world.journal.fences == {SESSION: 1}


async def test_call_makes_its_own_fence_durable_before_it_runs(
    world: World, commits: Commits
) -> None:
    await world.executor.provision(SESSION, 1)
    asked = execute(world, "c1", 1)
    sandbox = world.backend.launched[0]
    call = await sandbox.frames.get()
    assert (commits.waiting, world.journal.fences) == (1, {SESSION: 1})
    sandbox.answer(call)
    await asked
    commits.go.set()


async def test_provision_of_an_older_lease_is_refused_after_a_restart_and_claims_nothing(
    world: World,
) -> None:
    await world.executor.provision(SESSION, 5)
    await world.restart()
    for generation in (4, 0):
        with pytest.raises(DroverError) as refused:
            await world.executor.provision(SESSION, generation)
        assert refused.value.reason is Reason.LEASE_LOST
    assert len(world.backend.launched) == 1


async def test_fence_that_cannot_be_kept_fails_a_provision_that_still_waits(
    world: World, commits: Commits
) -> None:
    world.backend.gate = asyncio.Event()
    asked = asyncio.create_task(world.executor.provision(SESSION, 1))
    await eventually(lambda: commits.waiting == 1)
    commits.fail()
    await eventually(lambda: commits.waiting == 0)
    world.backend.gate.set()
    with pytest.raises(DroverError, match="the journal is away"):
        await asked


async def test_fence_that_cannot_be_written_at_all_fails_a_provision_and_starts_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_arguments: object) -> None:
        raise DroverError(Reason.UNAVAILABLE, "the journal is away")

    monkeypatch.setattr(world.journal, "fence", away)
    with pytest.raises(DroverError, match="the journal is away"):
        await world.executor.provision(SESSION, 1)
    assert not world.backend.launched


async def test_fence_that_was_lost_behind_an_answer_is_made_by_the_first_call(
    world: World, commits: Commits
) -> None:
    hand, _ = await world.executor.provision(SESSION, 2)
    commits.fail()
    await eventually(lambda: commits.waiting == 0)
    assert world.journal.fences == {}
    await run(world, "c1", 2)
    assert world.journal.fences == {SESSION: 2}
    assert world.pool.live() == {SESSION: hand}


async def test_lease_that_only_a_provision_has_shown_may_be_forgotten_but_no_call_runs_twice(
    world: World, commits: Commits
) -> None:
    await world.executor.provision(SESSION, 5)
    commits.fail()
    await eventually(lambda: commits.waiting == 0)
    await world.restart()
    stale = await run(world, "c1", 4, 1)  # as if it had come before the newer lease
    assert not stale.replayed
    newer = await execute(world, "c1", 5)
    assert (newer.replayed, newer.content) == (True, stale.content)
    with pytest.raises(DroverError) as refused:
        await execute(world, "c2", 4)
    assert refused.value.reason is Reason.LEASE_LOST
