from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.hands.seats import Seat

if TYPE_CHECKING:
    from services.hands.hand import Hand


async def test_a_seat_whose_start_was_cancelled_has_no_hand_to_use() -> None:
    hand: asyncio.Future[Hand] = asyncio.get_running_loop().create_future()
    seat = Seat(hand, 0.0)
    assert seat.usable
    hand.cancel()
    assert not seat.usable
    assert not seat.ready
    assert not seat.older_than(1.0)
