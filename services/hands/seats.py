"""A session's place in the pool, and what starts the hand that sits there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.hands.backends.port import SandboxSpec
from services.hands.hand import Hand

if TYPE_CHECKING:
    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.hands.backends.port import Backend, Volume
    from services.hands.domain.recipe import Blueprint


@dataclass(slots=True, eq=False)
class Seat:
    """The place of one hand: its future, and who uses it."""

    hand: asyncio.Future[Hand]
    used_at: float
    users: int = 0

    @property
    def usable(self) -> bool:
        """Whether the hand is there or on its way."""
        if not self.hand.done():
            return True
        if self.hand.cancelled():  # with the service, which stops
            return False
        return self.hand.exception() is None and not self.hand.result().dead.is_set()

    @property
    def ready(self) -> bool:
        """Whether the hand is there."""
        return self.hand.done() and self.usable

    @property
    def idle(self) -> bool:
        """Whether the hand is there and nobody uses it."""
        return self.users == 0 and self.hand.done()

    def older_than(self, started: float) -> bool:
        """Whether the hand was started before that moment."""
        return self.ready and self.hand.result().started_at <= started


class Starter:
    """Starts sandboxes, so many at once as the machine has use for."""

    def __init__(
        self,
        backend: Backend,
        tasks: asyncio.TaskGroup,
        *,
        clock: Clock,
        ids: IdSource,
        at_once: int,
        grace: float,
    ) -> None:
        self.kind = backend.name
        self._backend = backend
        self._tasks = tasks
        self._clock = clock
        self._ids = ids
        self._grace = grace
        self._starting = asyncio.Semaphore(at_once)

    async def launch(self, volume: Volume, blueprint: Blueprint) -> Hand:
        """A new hand over a volume. Raises `BackendUnavailable`."""
        hand_id = self._ids("hand")
        spec = SandboxSpec(hand_id, volume, blueprint.limits, blueprint.kind, blueprint.image)
        async with self._starting:
            sandbox = await self._backend.launch(spec)
            hand = Hand(hand_id, sandbox, grace=self._grace)
            hand.backend = blueprint.kind
            hand.started_at = self._clock.monotonic()
            hand.workspace_bytes = blueprint.limits.workspace_bytes
            await hand.open(self._tasks)
        return hand
