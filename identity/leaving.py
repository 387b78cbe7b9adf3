"""How a process leaves the others: it says so, and goes on while they take notice."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Reporter(Protocol):
    """Who answers health checks."""

    async def report(self, *, serving: bool) -> None:
        """Answers them so from now on; whatever is reported, calls are taken."""
        ...


@asynccontextmanager
async def announced(seconds: float, *reporters: Reporter) -> AsyncIterator[None]:
    """Says at the end of the block that this process is not to be called any more.

    Only `seconds` later does the block end: whoever sends it calls learns of that from its health
    checks, and calls others meanwhile. A process that fails does not wait.
    """
    yield
    for reporter in reporters:
        await reporter.report(serving=False)
    await asyncio.sleep(seconds)
