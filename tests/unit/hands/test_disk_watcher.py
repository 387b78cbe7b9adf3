"""Which limit the disk watcher holds a workspace to."""

from __future__ import annotations

import pytest

from services.hands.disk import DiskLimits, DiskWatcher
from services.hands.domain.limits import MIB
from services.hands.domain.recipe import Recipe, Wanted
from tests.unit.hands.conftest import World


@pytest.mark.parametrize(
    ("recipe", "size", "ended"),
    [
        (Recipe(), 9, False),
        (Recipe(), 12, True),
        (Recipe(wanted=Wanted(workspace_mib=20)), 12, False),
        (Recipe(wanted=Wanted(workspace_mib=20)), 24, True),
    ],
)
async def test_workspace_is_held_to_its_environments_limit_or_to_the_installations(
    world: World, recipe: Recipe, size: int, *, ended: bool
) -> None:
    watcher = DiskWatcher(world.pool, world.workspaces, DiskLimits(10 * MIB, 0), world.clock)
    async with world.pool.use("sesn_1@build", recipe) as hand:
        await watcher.look()
        place = world.directory / "workspaces/sesn_1@build/workspace/large"
        place.write_bytes(b"x" * size * MIB)
        # Else what other tests free meanwhile may hide that the disk is fuller.
        watcher._measured["sesn_1@build"].used = 0
        await watcher.look()
        assert hand.dead.is_set() is ended
