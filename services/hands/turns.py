"""Turns at starting sandboxes: so many at once, those that sessions wait for before spares."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_MOST_BEFORE_SPARES: Final = 16
"""Sessions that go before spares which wait, until one spare has its turn: without any under load
that never ends, every new session would wait for a start.
"""

_Line = deque[asyncio.Future[None]]


class Turns:
    """Who waits in one line has turns in the order of coming. The spares' line moves only while no
    session waits, or after so many sessions.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._sessions: _Line = deque()
        self._spares: _Line = deque()
        self._before_spares = 0

    @asynccontextmanager
    async def turn(self, *, spare: bool = False) -> AsyncIterator[None]:
        """Waits for one, and has it while the body runs."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._spares if spare else self._sessions).append(mine)
        self._give()
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was given in the same moment
                self._give_back()
            raise
        try:
            yield
        finally:
            self._give_back()

    def _give_back(self) -> None:
        self._free += 1
        self._give()

    def _give(self) -> None:
        while self._free and (line := self._next()):
            self._free -= 1
            line.popleft().set_result(None)

    def _next(self) -> _Line | None:
        """The line whose first is next; nothing where nobody waits."""
        for line in (self._sessions, self._spares):
            while line and line[0].done():  # it was cancelled
                line.popleft()
        if self._sessions and (not self._spares or self._before_spares < _MOST_BEFORE_SPARES):
            self._before_spares += bool(self._spares)
            return self._sessions
        self._before_spares = 0
        return self._spares or None
