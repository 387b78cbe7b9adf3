"""Waiting for a condition, with a deadline, and what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.hands.pool import Pool


async def eventually(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Returns once `holds` does; fails after so many seconds."""
    async with asyncio.timeout(seconds):
        # It has no event; and another process may have to come by it, which needs the processor.
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def ready_spares(pool: Pool) -> int:
    """How many sandboxes wait for a session."""
    return sum(shelf.ready_count for shelf in pool.spares.shelves)
