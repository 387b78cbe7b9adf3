"""Who has which hand: handing one on, safely whoever dies in the middle of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from services.hands.domain import handover as rules
from services.hands.domain.address import address, session_of, shown, split
from services.hands.lifecycle import Lifecycle, Unobserved

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from services.hands.domain.handover import Generations, HandOver, HandOvers
    from services.hands.pool import Pool
    from services.hands.workspace import Workspaces

# The record may have been written all the same.
_UNCERTAIN: Final = frozenset(
    {Reason.UNAVAILABLE, Reason.DEADLINE_EXCEEDED, Reason.INTERNAL, Reason.RESOURCE_EXHAUSTED}
)

_log = structlog.get_logger("hands.custody")


class Custody:
    """Hands on hands. What is on its way is nobody's to use until it has arrived."""

    def __init__(
        self,
        handovers: HandOvers,
        pool: Pool,
        workspaces: Workspaces,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        self._handovers = handovers
        self._pool = pool
        self._workspaces = workspaces
        self._lifecycle = lifecycle or Unobserved()
        self._moving: set[str] = set()
        self._uncertain: set[str] = set()
        self._one = asyncio.Lock()
        # Sessions that have ever given something away, once they are known: all others need not be
        # looked up, and a hand from the pool is to be there at once.
        self._givers: set[str] | None = None

    def check_rests(self, session_id: str, hand: str) -> None:
        """Raises UNAVAILABLE for a hand that is on its way from one session to another."""
        if address(session_id, hand) in self._moving:
            raise rules.moving(hand)

    def check_all_rest(self, session_id: str) -> None:
        """Raises UNAVAILABLE where any hand of the session is on its way."""
        for where in self._moving:
            if session_of(where) == session_id:
                raise rules.moving(split(where)[1])

    async def check(self, session_id: str, hand: str) -> None:
        """Raises ARCHIVED (`hand_handed_over`) for a hand that was given away."""
        if self._givers is not None and session_id not in self._givers:
            return
        if (given := await self._handovers.find(session_id, hand)) is not None:
            raise rules.refused(given)

    def hand_over(
        self, handover: HandOver, generations: Generations, workspace_id: str
    ) -> Coroutine[None, None, None]:
        """Hands a hand on that nobody uses, nor is let use once this has been called.

        What is awaited goes on from where an earlier attempt was left. It raises LEASE_LOST,
        NOT_FOUND, ALREADY_EXISTS, ARCHIVED (`hand_handed_over`), and UNAVAILABLE or `OSError` when
        it could not be completed: then it will be, or was never begun.
        """
        ends = {handover.where, handover.to}
        if self._givers is not None:
            self._givers.add(handover.session_id)
        self._moving |= ends
        return self._hand_over(handover, ends, generations, workspace_id)

    async def _hand_over(
        self, handover: HandOver, ends: set[str], generations: Generations, workspace_id: str
    ) -> None:
        try:
            if await self._is_new(handover):
                await self._check_ends(handover)
                await self._pool.leave([handover.where])  # others do not wait for that
            async with self._one:
                if await self._is_new(handover):
                    await self._check_ends(handover)
                await self._handovers.begin(handover, generations, workspace_id)
                await self._complete(handover)
        except BaseException as error:
            if isinstance(error, DroverError) and error.reason not in _UNCERTAIN:
                self._moving -= ends
            else:
                self._uncertain |= ends  # nobody uses either until `recover`
            raise
        self._moving -= ends

    async def recover(self) -> None:
        """Completes what was begun: by a process that died, or by this one when something failed.

        Called before the hands serve, and from time to time. Raises `OSError` and `DroverError`.
        """
        async with self._one:
            certain = self._uncertain.copy()
            for handover in await self._handovers.unsettled():
                await self._complete(handover)
            if self._givers is None:
                self._givers = await self._handovers.givers()
        self._uncertain -= certain
        self._moving -= certain

    async def tend(self) -> None:
        """Calls `recover` where something failed. Raises nothing that the next time may mend."""
        if not self._uncertain:
            return
        try:
            await self.recover()
        except (DroverError, OSError) as error:
            _log.warning("handover_waits", reason=str(error))

    async def purge(self, session_id: str, hand: str | None = None) -> None:
        """Deletes the workspace of a session's hand, or all that is the session's.

        What it gave away is another's, and stays. Raises `OSError` and `DroverError`.
        """
        if hand is None:
            wanted = await self._workspaces.addresses(session_id)
        else:
            wanted = [address(session_id, hand)]
        for where in wanted:
            await self._workspaces.purge(where)
        await self._lifecycle.purged(session_id, hand)
        if hand is None:
            await self._handovers.forget(session_id)

    async def addresses(self, session_id: str) -> set[str]:
        """Where a session has workspaces on this machine."""
        return {*await self._workspaces.addresses(session_id)}

    async def _is_new(self, handover: HandOver) -> bool:
        return await self._handovers.find(handover.session_id, handover.hand) != handover

    async def _check_ends(self, handover: HandOver) -> None:
        if not await self._exists(handover.where):
            await self.check(handover.session_id, handover.hand)
            raise rules.not_made(handover.session_id, handover.hand)
        if await asyncio.to_thread(self._workspaces.has_memory, handover.where):
            raise rules.has_memory(handover.hand)
        if await self._exists(handover.to):
            raise DroverError(
                Reason.ALREADY_EXISTS,
                f"session {handover.to_session_id} has {shown(handover.to_hand)} already",
            )

    async def _exists(self, where: str) -> bool:
        there = self._pool.has(where) or self._workspaces.find(where) is not None
        return there or await self._lifecycle.holds(where)

    async def _complete(self, handover: HandOver) -> None:
        """Moves what belongs to the receiver by now; nothing of it is done twice."""
        await self._pool.move(handover.where, handover.to)
        await self._workspaces.move(handover.where, handover.to)
        await self._lifecycle.moved(handover.where, handover.to)
        await self._handovers.settle(handover)
        _log.info(
            "hand_handed_over",
            session_id=handover.session_id,
            to_session_id=handover.to_session_id,
        )
