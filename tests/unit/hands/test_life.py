"""How long a hand lives, and who is told of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.hands.hand import Hand
from services.hands.lifecycle import Several, Unobserved
from services.hands.pool import PoolSize
from tests.doubles.hands_waiting import eventually, ready_spares
from tests.unit.hands.conftest import World

SIZE = PoolSize(spares=0, max_live=3, max_age_seconds=1000, idle_seconds=10_000)


async def hand_of(world: World, where: str = "sesn_1") -> Hand:
    async with world.pool.use(where) as hand:
        return hand


async def test_old_hand_is_replaced_at_its_next_use_over_the_same_files(world: World) -> None:
    await world.restart(SIZE)
    first = await hand_of(world)
    world.clock.seconds += 999
    assert await hand_of(world) is first
    world.clock.seconds += 1
    second = await hand_of(world)
    assert second is not first
    assert first.dead.is_set()
    old, new = world.backend.launched
    assert old.spec.volume == new.spec.volume


async def test_old_hand_is_never_ended_in_the_middle_of_a_call(world: World) -> None:
    await world.restart(SIZE)
    async with world.pool.use("sesn_1") as first:
        world.clock.seconds += 2000
        await world.pool.reap()
        async with world.pool.use("sesn_1") as same:
            assert same is first
        assert not first.dead.is_set()
    await world.pool.reap()
    assert first.dead.is_set()
    assert not world.pool.has("sesn_1")


async def test_use_makes_no_hand_younger(world: World) -> None:
    await world.restart(SIZE)
    await hand_of(world)
    for _ in range(10):
        world.clock.seconds += 100
        await world.pool.reap()
        assert world.pool.has("sesn_1") is (world.clock.seconds < 2000)
        if world.clock.seconds < 2000:
            await hand_of(world)
    assert len(world.backend.launched) == 1


class Heard(Unobserved):
    """Keeps what it is told. `gate` holds up starts; `put` makes a workspace before one."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.put: Path | None = None

    async def before_start(self, where: str) -> None:
        self.told.append(f"start {where}")
        if self.put is not None:
            (self.put / where / "workspace").mkdir(parents=True)

    def used(self, where: str) -> None:
        self.told.append(f"used {where}")

    def rested(self, where: str) -> None:
        self.told.append(f"rested {where}")

    def ended(self, where: str) -> None:
        self.told.append(f"ended {where}")


async def test_starts_uses_rests_and_ends_are_told_in_order(world: World) -> None:
    heard = Heard()
    await world.restart(SIZE, lifecycle=heard)
    async with world.pool.use("sesn_1"), world.pool.use("sesn_1"):
        pass
    await world.pool.release("sesn_1")
    await world.pool.release("sesn_1")
    start, use = "start sesn_1", "used sesn_1"
    assert sorted(heard.told[:3]) == sorted([use, start, use])
    assert heard.told[3:] == ["rested sesn_1", "ended sesn_1"]


async def test_hand_that_is_reaped_evicted_or_closed_has_ended_when_it_is_told(
    world: World,
) -> None:
    heard = Heard()
    await world.restart(PoolSize(spares=0, max_live=1, idle_seconds=10), lifecycle=heard)
    await hand_of(world, "sesn_1")
    await hand_of(world, "sesn_2")  # evicts
    await eventually(lambda: "ended sesn_1" in heard.told)
    assert world.backend.launched[0].killed.is_set()
    world.clock.seconds += 10
    await world.pool.reap()
    assert heard.told[-1] == "ended sesn_2"
    await hand_of(world, "sesn_3")
    await world.pool.close()
    assert heard.told[-1] == "ended sesn_3"


async def test_workspace_that_is_put_there_before_a_start_is_the_sessions(world: World) -> None:
    heard = Heard()
    heard.put = world.directory / "workspaces"
    await world.restart(PoolSize(spares=1, max_live=3), lifecycle=heard)
    world.pool.fill()
    await eventually(lambda: ready_spares(world.pool))
    hand = await hand_of(world)
    assert hand.id != world.backend.launched[0].spec.hand_id
    assert world.backend.launched[1].spec.volume.root == heard.put / "sesn_1"


async def test_new_hand_waits_until_the_one_before_it_has_ended(world: World) -> None:
    """Two sandboxes of one session never run side by side, whoever ended the first."""
    await world.restart(PoolSize(spares=0, max_live=1))
    await hand_of(world, "sesn_1")
    old = world.backend.launched[0]
    old.hold_kill = asyncio.Event()
    await hand_of(world, "sesn_2")  # evicts the first, which takes its time
    await eventually(lambda: old.kills)
    async with world.pool.use("sesn_2"):
        pass
    again = asyncio.create_task(hand_of(world, "sesn_1"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(world.backend.launched) == 2
    old.hold_kill.set()
    await again
    assert old.killed.is_set()
    assert len(world.backend.launched) == 3


class Slow(Unobserved):
    """Has something to do with each hand that leaves, and waits until all are there."""

    def __init__(self, barrier: asyncio.Barrier) -> None:
        self.barrier = barrier

    async def leaves(self, where: str) -> None:
        await self.barrier.wait()


async def test_hands_of_a_session_leave_together_whoever_is_told(world: World) -> None:
    slow = Slow(asyncio.Barrier(6))
    await world.restart(SIZE, lifecycle=Several([slow, slow]))
    async with asyncio.timeout(30):
        await world.pool.leave({"sesn_1", "sesn_1@a", "sesn_1@b"})
