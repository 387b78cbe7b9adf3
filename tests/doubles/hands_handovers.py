"""What was handed on, in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason
from services.hands.domain import fence
from services.hands.domain.handover import refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.hands.domain.handover import Generations, HandOver
    from tests.doubles.hands_journal import MemoryJournal


class MemoryHandOvers:
    """The `HandOvers` port over a dictionary, with the fences of a journal in memory.

    It knows of one workspace, and of every session that the journal has seen. `fail` is raised by
    the next call of the method that it names, before or after that has done its work; `hold` keeps
    what begins.
    """

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal
        self.given: dict[tuple[str, str], HandOver] = {}
        self.open: dict[tuple[str, str], HandOver] = {}
        self.fail: dict[str, BaseException] = {}
        self.hold: asyncio.Event | None = None
        self.held = False

    async def begin(self, handover: HandOver, generations: Generations, workspace_id: str) -> None:
        self._fail("before begin")
        if self.hold is not None:
            self.held = True
            await self.hold.wait()
        fences = self._journal.fences
        for session_id in (handover.session_id, handover.to_session_id):
            if session_id not in fences or not workspace_id:
                raise DroverError(Reason.NOT_FOUND, session_id)
        advanced = fence.advance(fences[handover.session_id], generations.giver)
        if generations.receiver:
            fences[handover.to_session_id] = fence.advance(
                fences[handover.to_session_id], generations.receiver
            )
        fences[handover.session_id] = advanced
        key = (handover.session_id, handover.hand)
        if self.given.get(key, handover) != handover:
            raise refused(self.given[key])
        self.given.pop((handover.to_session_id, handover.to_hand), None)
        if key not in self.given:
            self.given[key] = self.open[key] = handover
        self._fail("begin")

    async def settle(self, handover: HandOver) -> None:
        self._fail("before settle")
        self.open.pop((handover.session_id, handover.hand), None)
        self._fail("settle")

    async def unsettled(self) -> Sequence[HandOver]:
        return list(self.open.values())

    async def find(self, session_id: str, hand: str) -> HandOver | None:
        return self.given.get((session_id, hand))

    async def givers(self) -> set[str]:
        return {handover.session_id for handover in self.given.values()}

    async def forget(self, session_id: str) -> None:
        self.given = {key: value for key, value in self.given.items() if key[0] != session_id}

    def _fail(self, where: str) -> None:
        if where in self.fail:
            raise self.fail.pop(where)
