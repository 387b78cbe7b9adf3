from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from services.hands.backends.port import BackendUnavailable
from services.hands.hand import Hand
from services.hands.pool import PoolSize
from tests.doubles.hands_waiting import eventually, ready_spares
from tests.unit.hands.conftest import World


async def hand_of(world: World, session_id: str) -> Hand:
    async with world.pool.use(session_id) as hand:
        return hand


async def spare_is_ready(world: World) -> None:
    await eventually(lambda: ready_spares(world.pool))


async def test_users_that_come_together_share_one_start(world: World) -> None:
    world.backend.gate = asyncio.Event()
    users = [asyncio.create_task(hand_of(world, "sesn_1")) for _ in range(5)]
    await world.backend.starting.wait()
    world.backend.gate.set()
    hands = await asyncio.gather(*users)
    assert len({hand.id for hand in hands}) == len(world.backend.launched) == 1


async def test_start_goes_on_when_the_first_user_is_cancelled(world: World) -> None:
    world.backend.gate = asyncio.Event()
    first = asyncio.create_task(hand_of(world, "sesn_1"))
    await world.backend.starting.wait()
    second = asyncio.create_task(hand_of(world, "sesn_1"))
    await asyncio.sleep(0)
    first.cancel()
    world.backend.gate.set()
    assert (await second).id == "hand_1"


async def test_failed_start_is_every_users_error_and_the_next_user_starts_anew(
    world: World,
) -> None:
    world.backend.refuse = "no namespaces"
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match="no namespaces"):
            await hand_of(world, "sesn_1")
    world.backend.refuse = ""
    assert not (await hand_of(world, "sesn_1")).dead.is_set()


async def test_sandbox_is_confined_before_it_serves(world: World) -> None:
    await hand_of(world, "sesn_1")
    assert world.backend.launched[0].confined


async def test_dead_hand_is_replaced_in_the_same_workspace(world: World) -> None:
    hand = await hand_of(world, "sesn_1")
    world.backend.launched[0].die()
    await hand.dead.wait()
    other = await hand_of(world, "sesn_1")
    assert other.id != hand.id
    first, second = world.backend.launched
    assert first.spec.volume == second.spec.volume


async def test_idle_hand_that_was_used_longest_ago_makes_room(world: World) -> None:
    for number in range(3):
        await hand_of(world, f"sesn_{number}")
        world.clock.seconds += 1
    await hand_of(world, "sesn_0")
    await hand_of(world, "sesn_new")
    await world.backend.launched[1].killed.wait()
    killed = [sandbox.killed.is_set() for sandbox in world.backend.launched]
    assert killed == [False, True, False, False]


async def test_busy_hands_make_no_room(world: World) -> None:
    async with (
        world.pool.use("sesn_0"),
        world.pool.use("sesn_1"),
        world.pool.use("sesn_2"),
    ):
        with pytest.raises(DroverError) as refused:
            await hand_of(world, "sesn_new")
    assert refused.value.reason is Reason.RESOURCE_EXHAUSTED
    assert refused.value.retry_after is not None
    await hand_of(world, "sesn_new")


async def test_hand_is_reaped_once_it_has_been_idle_long_enough(world: World) -> None:
    await hand_of(world, "sesn_1")
    world.clock.seconds += world.size.idle_seconds - 1
    await world.pool.reap()
    assert world.pool.has("sesn_1")
    world.clock.seconds += 1
    await world.pool.reap()
    assert not world.pool.has("sesn_1")
    assert world.backend.launched[0].killed.is_set()


async def test_hand_in_use_is_not_reaped(world: World) -> None:
    async with world.pool.use("sesn_1") as hand:
        world.clock.seconds += 10 * world.size.idle_seconds
        await world.pool.reap()
        assert not hand.dead.is_set()


async def test_new_session_gets_the_spare_with_its_workspace(world: World) -> None:
    await world.restart(PoolSize(spares=1, max_live=3))
    world.pool.fill()
    await spare_is_ready(world)
    spare = world.backend.launched[0]
    (spare.spec.volume.root / "workspace" / "here").touch()
    hand = await hand_of(world, "sesn_1")
    assert hand.id == spare.spec.hand_id
    volume = world.workspaces.find("sesn_1")
    assert volume is not None
    assert (volume.root / "workspace" / "here").exists()
    assert not spare.spec.volume.root.exists()


async def test_spare_is_never_given_twice_nor_to_a_session_with_a_workspace(world: World) -> None:
    await world.workspaces.make("sesn_old")
    await world.restart(PoolSize(spares=1, max_live=3))
    world.pool.fill()
    await spare_is_ready(world)
    old = await hand_of(world, "sesn_old")
    new = await hand_of(world, "sesn_new")
    await spare_is_ready(world)
    newer = await hand_of(world, "sesn_newer")
    assert len({old.id, new.id, newer.id}) == 3
    assert new.id == world.backend.launched[0].spec.hand_id


async def test_dead_spare_is_not_given(world: World) -> None:
    await world.restart(PoolSize(spares=1, max_live=3))
    world.pool.fill()
    await spare_is_ready(world)
    spare = world.backend.launched[0]
    spare.die()
    await spare.killed.wait()
    hand = await hand_of(world, "sesn_1")
    assert hand.id != spare.spec.hand_id


async def test_spare_that_is_started_while_the_pool_closes_is_ended_too(world: World) -> None:
    await world.restart(PoolSize(spares=1, max_live=3))
    world.backend.gate = asyncio.Event()
    world.pool.fill()
    await world.backend.starting.wait()
    await world.pool.close()
    world.backend.gate.set()
    await eventually(lambda: world.backend.launched)
    await world.backend.launched[0].killed.wait()


async def test_spare_that_is_started_while_others_are_reaped_is_kept(world: World) -> None:
    await world.restart(PoolSize(spares=1, max_live=3))
    world.backend.gate = asyncio.Event()
    world.pool.fill()
    await world.backend.starting.wait()
    await world.pool.reap()
    world.backend.gate.set()
    await spare_is_ready(world)


async def test_closed_pool_starts_nothing_and_leaves_nothing(world: World) -> None:
    await hand_of(world, "sesn_1")
    await world.pool.close()
    assert world.backend.launched[0].killed.is_set()
    with pytest.raises(DroverError) as refused:
        await hand_of(world, "sesn_1")
    assert refused.value.reason is Reason.UNAVAILABLE
