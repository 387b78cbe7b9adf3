"""How often another service is asked for what it still owes to sessions that are no more."""

from __future__ import annotations

import asyncio
from typing import Final

from chassis.errors import Reason

EVERY_SECONDS: Final = 5.0
AWAY_SECONDS: Final = 1.0
"""For how long a service that does not answer is left alone: nothing is wrong with what it was
asked for, so all of it goes soon after it is back."""
AWAY: Final = frozenset({Reason.UNAVAILABLE, Reason.DEADLINE_EXCEEDED})

_FIRST_DELAY: Final = 1_000_000
_LONGEST_DELAY: Final = 60_000_000


def delay(attempts: int) -> int:
    """Microseconds until what was refused so often is asked for again."""
    return min(_FIRST_DELAY << min(attempts, 10), _LONGEST_DELAY)


async def pause(due: asyncio.Event, *, away: bool) -> None:
    """Waits until there may be more to do, or somebody says so by `due`."""
    try:
        async with asyncio.timeout(AWAY_SECONDS if away else EVERY_SECONDS):
            await due.wait()
    except TimeoutError:
        return
    finally:
        due.clear()
