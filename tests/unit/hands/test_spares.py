"""Spares by recipe: who gets one, and what becomes of a recipe that fails."""

from __future__ import annotations

import asyncio

import pytest

from services.hands.backends.port import BackendUnavailable, Volume
from services.hands.domain.recipe import Recipe, Wanted
from services.hands.hand import Hand
from services.hands.metrics import PoolMetrics
from services.hands.pool import PoolSize
from services.hands.spares import Shelf
from tests.doubles.hands_waiting import eventually, ready_spares
from tests.unit.hands.conftest import World

NONE = PoolSize(spares=0, max_live=10)
BOX = Recipe("docker", "team/box:1")
SMALL = Recipe("docker", "team/box:1", Wanted(memory_mib=256))


async def hand_of(world: World, session_id: str, recipe: Recipe) -> Hand:
    async with world.pool.use(session_id, recipe) as hand:
        return hand


def shelf(world: World, recipe: Recipe) -> Shelf:
    blueprint = world.pool._standard.blueprint(recipe)
    return next(one for one in world.pool.spares.shelves if one.blueprint == blueprint)


async def filled(world: World, **pools: Recipe) -> None:
    await world.restart(NONE, dict.fromkeys(pools.values(), 1))
    world.pool.fill()
    for recipe in pools.values():
        await eventually(lambda recipe=recipe: shelf(world, recipe).ready)


async def test_spare_is_made_by_the_recipe_of_its_pool(world: World) -> None:
    await filled(world, pool=SMALL)
    spec = world.backend.launched[0].spec
    assert (spec.kind, spec.image) == ("docker", "team/box:1")
    assert spec.limits.memory_bytes == 256 * 1024 * 1024
    assert spec.limits.processes == 512


@pytest.mark.parametrize(
    "other",
    [
        Recipe(),
        Recipe("docker", "team/box:2"),
        Recipe("docker"),
        Recipe("docker", "team/box:1", Wanted(memory_mib=512)),
        Recipe("docker", "team/box:1", Wanted(cpus=0.5, memory_mib=256)),
        Recipe("docker", "team/box:1", Wanted(memory_mib=256, workspace_mib=20)),
    ],
)
async def test_spare_goes_only_to_a_session_of_the_very_same_recipe(
    world: World, other: Recipe
) -> None:
    await filled(world, pool=SMALL)
    spare = world.backend.launched[0].spec.hand_id
    assert (await hand_of(world, "sesn_other", other)).id != spare
    assert (await hand_of(world, "sesn_same", SMALL)).id == spare


async def test_recipe_that_names_the_defaults_is_the_one_that_leaves_them_open(
    world: World,
) -> None:
    await filled(world, pool=Recipe("docker"))
    spare = world.backend.launched[0].spec.hand_id
    assert (await hand_of(world, "sesn_1", Recipe("docker", "drover/sandbox"))).id == spare


async def test_recipe_that_fails_backs_off_says_why_and_holds_up_no_other(world: World) -> None:
    world.backend.refuse_images["team/gone"] = "there is no such image"
    gone = Recipe("docker", "team/gone")
    await world.restart(NONE, {gone: 2, BOX: 2})
    world.pool.fill()
    await eventually(lambda: shelf(world, BOX).ready_count == 2)
    await eventually(lambda: shelf(world, gone).failures == 1)
    assert shelf(world, gone).reason == "there is no such image"
    tries = world.backend.attempts["team/gone"]
    for seconds in (1, 2, 4):
        world.pool.fill()  # too early: nothing happens
        assert not shelf(world, gone).filling
        world.clock.seconds += seconds
        world.pool.fill()
        tries += 1
        await eventually(lambda tries=tries: world.backend.attempts["team/gone"] == tries)
        await eventually(lambda: not shelf(world, gone).filling)
    del world.backend.refuse_images["team/gone"]
    world.clock.seconds += 8
    world.pool.fill()
    await eventually(lambda: shelf(world, gone).ready_count == 2)
    assert (shelf(world, gone).failures, shelf(world, gone).reason) == (0, "")


async def test_failed_spare_leaves_no_workspace(world: World) -> None:
    world.backend.refuse = "no namespaces"
    await world.restart(NONE, {BOX: 1})
    world.pool.fill()
    await eventually(lambda: shelf(world, BOX).failures)
    assert not list((world.directory / "spares").iterdir())


async def test_spare_that_has_grown_old_is_replaced(world: World) -> None:
    await filled(world, pool=BOX)
    world.clock.seconds += NONE.max_age_seconds
    await world.pool.reap()
    await world.backend.launched[0].killed.wait()
    await eventually(lambda: len(world.backend.launched) == 2 and shelf(world, BOX).ready)
    assert (await hand_of(world, "sesn_1", BOX)).id == world.backend.launched[1].spec.hand_id


async def test_refills_are_bounded_over_all_pools(world: World) -> None:
    world.backend.hold()
    await world.restart(
        PoolSize(spares=0, max_live=10, starts_at_once=4),
        {Recipe("docker", f"team/{number}"): 2 for number in range(6)},
    )
    world.pool.fill()
    await eventually(lambda: world.backend.starts_now == 2)
    world.backend.let_go()
    await eventually(lambda: ready_spares(world.pool) == 12)
    assert world.backend.most_starts == 2


async def test_spare_is_started_once_no_session_waits_for_a_start(world: World) -> None:
    world.backend.hold()
    await world.restart(PoolSize(spares=0, max_live=10, starts_at_once=1), {BOX: 1})
    async with asyncio.timeout(30), asyncio.TaskGroup() as sessions:
        sessions.create_task(world.pool.prepare("sesn_1", BOX))
        await world.backend.starting.wait()
        world.pool.fill()
        await eventually(lambda: [*(world.directory / "spares").iterdir()])  # it waits its turn
        sessions.create_task(world.pool.prepare("sesn_2", BOX))
        sessions.create_task(world.pool.prepare("sesn_3", BOX))
        await eventually(lambda: shelf(world, BOX).misses == 3)
        world.backend.let_go()
    await eventually(lambda: shelf(world, BOX).ready)
    owners = [sandbox.spec.volume.root.parent.name for sandbox in world.backend.launched]
    assert owners[-1] == "spares"
    assert owners.count("spares") == 1


async def test_claims_misses_and_what_is_ready_are_shown(world: World) -> None:
    await filled(world, pool=BOX)
    await hand_of(world, "sesn_1", BOX)
    await hand_of(world, "sesn_2", BOX)
    world.clock.seconds += 5
    shown = {
        sample.name: sample.value
        for metric in PoolMetrics(world.pool, world.clock).collect()
        for sample in metric.samples
        if sample.labels.get("image", "team/box:1") == "team/box:1"
    }
    assert shown["drover_hands_live"] == 2
    assert shown["drover_hands_oldest_seconds"] == 5
    assert shown["drover_hands_spares_claims_total"] == 1
    assert shown["drover_hands_spares_misses_total"] == 1
    assert shown["drover_hands_spares_wanted"] == 1


async def test_spare_whose_workspace_cannot_be_given_away_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(world, pool=BOX)
    spare = world.backend.launched[0]

    def fails(where: str, spare: Volume) -> Volume:
        raise OSError(28, f"no space left for {where}: {spare.root}")

    with monkeypatch.context() as patched:
        patched.setattr(world.workspaces, "adopt", fails)
        with pytest.raises(BackendUnavailable, match="a workspace could not be made"):
            await hand_of(world, "sesn_1", BOX)
    await eventually(spare.killed.is_set)
    await eventually(lambda: not spare.spec.volume.root.exists())
    await hand_of(world, "sesn_1", BOX)
