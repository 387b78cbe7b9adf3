from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

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
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(world.pool.prepare(f"sesn_{number}"))
        await first.wait()
        assert world.pool.starts("sesn_2")
        assert made == ["sesn_0"]
        go.set()
    assert made == ["sesn_0", "sesn_1", "sesn_2"]
