from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from services.hands.backends.port import ImageGone
from services.hands.domain.packages import Layering, Packages
from services.hands.domain.recipe import Blueprint, Recipe
from services.hands.pool import PoolSize
from services.hands.seats import Seat

if TYPE_CHECKING:
    from services.hands.backends.port import Volume
    from services.hands.hand import Hand
    from tests.unit.hands.conftest import World


async def test_a_seat_whose_start_was_cancelled_has_no_hand_to_use() -> None:
    hand: asyncio.Future[Hand] = asyncio.get_running_loop().create_future()
    seat = Seat(hand, 0.0)
    assert seat.usable
    hand.cancel()
    assert not seat.usable
    assert not seat.ready
    assert not seat.older_than(1.0)


async def test_workspaces_of_many_that_come_at_once_are_made_in_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.restart(PoolSize(spares=0, max_live=3, starts_at_once=1))
    made: list[str] = []
    first, go = asyncio.Event(), asyncio.Event()
    make = world.workspaces.make

    async def slowly(where: str, _stores: object) -> Volume:
        made.append(where)
        first.set()
        await go.wait()
        return await make(where)

    monkeypatch.setattr(world.workspaces, "make", slowly)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(world.pool.prepare(f"sesn_{number}"))
        await first.wait()
        assert world.pool.starts("sesn_2")
        assert made == ["sesn_0"]
        go.set()
    assert made == ["sesn_0", "sesn_1", "sesn_2"]


WITH_JQ = Recipe("docker", "team/box:1", packages=Packages((("apt", ("jq",)),), "wrkspc_1"))


class Images:
    """Those that a list of packages leads to, one after the other; the last for ever."""

    def __init__(self, *names: str) -> None:
        self.names = [*names]

    async def layered(self, blueprint: Blueprint, _session_id: str) -> tuple[Blueprint, Layering]:
        name = self.names.pop(0) if len(self.names) > 1 else self.names[0]
        return replace(blueprint, image=name), Layering("key", "team/box:1")

    async def mount(self, _: Blueprint) -> tuple[None, str]:
        return None, ""

    async def close(self) -> None:
        """Nothing."""


async def started(world: World, *images: str) -> Hand:
    await world.restart(PoolSize(spares=0))
    starter = world.pool._starter
    starter.packages = cast("Any", Images(*images))
    volume = await world.workspaces.make("sesn_1")
    return await starter.launch(volume, world.pool._standard.blueprint(WITH_JQ), "sesn_1")


async def test_start_whose_image_was_replaced_while_it_waited_takes_the_one_there_is(
    world: World,
) -> None:
    world.backend.gone = {"old"}
    hand = await started(world, "old", "new")
    assert hand.image == "new"
    await hand.kill("the test is over")


async def test_start_whose_image_stays_away_says_so(world: World) -> None:
    world.backend.gone = {"old", "new"}
    with pytest.raises(ImageGone, match="there is no image new"):
        await started(world, "old", "new")
    assert dict(world.backend.attempts) == {"old": 1, "new": 2}
