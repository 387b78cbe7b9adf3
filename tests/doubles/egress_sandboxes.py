"""Sandboxes of each kind behind the real egress proxy, for the attacks of CASES E."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.doubles.egress import session
from tests.doubles.egress_proxy import GRANT, World
from tests.doubles.egress_whole import Whole, whole
from tests.doubles.hands_stack import HandsStack, Sandboxes


@asynccontextmanager
async def attacked(
    kind: Sandboxes, place: Path, world: World | None = None
) -> AsyncIterator[tuple[HandsStack, Whole]]:
    """Hands whose sessions may reach `allowed.example` alone, or what the world says."""
    limited = World(sessions={GRANT: session(allowed=["allowed.example"])})
    async with (
        whole(world or limited) as outside,
        kind.stack(place, outside=outside) as hands,
    ):
        yield hands, outside
