"""Which limit the disk watcher holds a workspace to, and what it measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.hands import disk
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


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the workspaces that were measured, all of which were found to be empty."""
    names: list[str] = []

    def size(root: Path) -> int:
        names.append(root.name)
        return 0

    monkeypatch.setattr(disk, "_size", size)
    return names


async def test_workspace_that_was_made_since_the_last_look_is_measured_once_it_may_be_too_large(
    world: World, measured: list[str]
) -> None:
    watcher = DiskWatcher(world.pool, world.workspaces, DiskLimits(10 * MIB, 0), world.clock)
    async with world.pool.use("sesn_old"):
        await watcher.look()
        async with world.pool.use("sesn_new"):
            await watcher.look()
            assert measured == ["sesn_old"]
            watcher._measured["sesn_old"].used *= 2  # what others free meanwhile hides nothing here
            watcher._measured["sesn_new"].used = 0
            await watcher.look()
            assert measured == ["sesn_old", "sesn_new"]


async def test_workspace_that_was_there_before_is_measured_at_the_first_look(
    world: World, measured: list[str]
) -> None:
    watcher = DiskWatcher(world.pool, world.workspaces, DiskLimits(10 * MIB, 0), world.clock)
    await world.workspaces.make("sesn_1")
    await watcher.look()
    async with world.pool.use("sesn_1"):
        await watcher.look()
    assert measured == ["sesn_1"]
