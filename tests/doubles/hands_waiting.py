"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(holds: Callable[[], object], seconds: float = 10.0) -> None:
    """Returns once `holds` does; fails after so many seconds."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0)
