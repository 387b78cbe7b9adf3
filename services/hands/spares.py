"""Spare sandboxes: kept ready by recipe, each with a workspace of its own, for sessions to come.

One is given away once, with its workspace, and only to a session whose recipe is the very one that
it was made by.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.backends.port import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.hands.backends.port import Volume
    from services.hands.domain.recipe import Blueprint
    from services.hands.hand import Hand
    from services.hands.seats import Starter
    from services.hands.workspace import Workspaces

# The session that took the spare is to run its first call before another start takes the processor.
_REFILL_DELAY: Final = 0.1
_FIRST_BACKOFF: Final = 1.0
_LONGEST_BACKOFF: Final = 300.0

_log = structlog.get_logger("hands.spares")


@dataclass(slots=True, eq=False)
class Shelf:
    """The spares of one recipe. `wanted` is how many there should be; `reason` why there are fewer.

    `claims` and `misses` count sessions that found one and that did not.
    """

    blueprint: Blueprint
    wanted: int
    ready: list[tuple[Hand, Volume]] = field(default_factory=list)
    filling: bool = False
    failures: int = 0
    retry_at: float = 0.0
    reason: str = ""
    claims: int = 0
    misses: int = 0

    @property
    def ready_count(self) -> int:
        """How many wait for a session."""
        return sum(not hand.dead.is_set() for hand, _ in self.ready)

    def oldest(self, now: float) -> float:
        """Seconds since the oldest of them was started; 0 if there is none."""
        return max((now - hand.started_at for hand, _ in self.ready), default=0.0)


class Spares:
    """Fills a shelf for each recipe in `wanted`. At most `at_once` spares are being started.

    A recipe that fails is left alone for longer and longer, and holds up no other.
    """

    def __init__(
        self,
        starter: Starter,
        workspaces: Workspaces,
        tasks: asyncio.TaskGroup,
        *,
        wanted: Mapping[Blueprint, int],
        at_once: int,
        max_age: float,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._starter = starter
        self._workspaces = workspaces
        self._tasks = tasks
        self._max_age = max_age
        self._clock = clock
        self._ids = ids
        self._closed = False
        self._starting = asyncio.Semaphore(at_once)
        self._shelves = {blueprint: Shelf(blueprint, count) for blueprint, count in wanted.items()}

    @property
    def shelves(self) -> tuple[Shelf, ...]:
        """One for each recipe of which spares are kept."""
        return tuple(self._shelves.values())

    def claim(self, blueprint: Blueprint) -> tuple[Hand, Volume] | None:
        """A spare made by exactly this recipe, the caller's from now on; None if there is none."""
        shelf = self._shelves.get(blueprint)
        if shelf is None or not shelf.wanted:
            return None
        while shelf.ready:
            hand, volume = shelf.ready.pop(0)
            if not hand.dead.is_set():
                shelf.claims += 1
                self._fill(shelf)
                return hand, volume
            self.discard(hand, volume, "it had ended")
        shelf.misses += 1
        self._fill(shelf)
        return None

    def fill(self) -> None:
        """Sees to it that there are spares, soon."""
        for shelf in self._shelves.values():
            self._fill(shelf)

    def sweep(self) -> None:
        """Throws away those that have ended or have grown too old, and sees to new ones."""
        since = self._clock.monotonic() - self._max_age
        for shelf in self._shelves.values():
            for hand, volume in [*shelf.ready]:
                if hand.dead.is_set() or hand.started_at <= since:
                    shelf.ready.remove((hand, volume))
                    self.discard(hand, volume, "it was too old")
            self._fill(shelf)

    def discard(self, hand: Hand, volume: Volume, why: str) -> None:
        """Ends one that nobody has, and deletes its workspace, soon."""
        self._tasks.create_task(self._end(hand, volume, why), name="end spare")

    async def close(self) -> None:
        """Ends every spare; one that is being started ends as soon as it is there."""
        self._closed = True
        async with asyncio.TaskGroup() as ends:
            for shelf in self._shelves.values():
                for hand, _ in shelf.ready:
                    ends.create_task(hand.kill("the service stops"))
                shelf.ready = []

    def _wants(self, shelf: Shelf) -> bool:
        return not self._closed and len(shelf.ready) < shelf.wanted

    def _fill(self, shelf: Shelf) -> None:
        due = self._clock.monotonic() >= shelf.retry_at
        if due and not shelf.filling and self._wants(shelf):
            shelf.filling = True
            self._tasks.create_task(self._refill(shelf), name="spares")

    async def _refill(self, shelf: Shelf) -> None:
        try:
            await asyncio.sleep(_REFILL_DELAY)
            while self._wants(shelf):
                async with self._starting:
                    await self._add(shelf)
                shelf.failures, shelf.reason = 0, ""
        except (BackendUnavailable, OSError) as error:
            self._back_off(shelf, str(error))
        except Exception:  # noqa: BLE001  # spares are a convenience
            _log.exception("spare_failed")
            self._back_off(shelf, "it could not be started")
        finally:
            shelf.filling = False

    async def _add(self, shelf: Shelf) -> None:
        volume = await self._workspaces.make_spare(self._ids("spare"))
        try:
            hand = await self._starter.launch(volume, shelf.blueprint)
        except Exception:
            await self._remove(volume)
            raise
        if self._closed:
            await hand.kill("the service stops")
        else:
            shelf.ready.append((hand, volume))

    def _back_off(self, shelf: Shelf, reason: str) -> None:
        pause = min(_FIRST_BACKOFF * 2**shelf.failures, _LONGEST_BACKOFF)
        shelf.failures = min(shelf.failures + 1, 16)
        shelf.retry_at = self._clock.monotonic() + pause
        shelf.reason = reason
        _log.warning(
            "no_spare",
            sandbox=shelf.blueprint.kind,
            image=shelf.blueprint.image,
            reason=reason,
            again_after_seconds=pause,
        )

    async def _end(self, hand: Hand, volume: Volume, why: str) -> None:
        await hand.kill(why)
        await self._remove(volume)

    async def _remove(self, volume: Volume) -> None:
        try:
            await self._workspaces.remove(volume)
        except OSError as error:  # the next start deletes it
            _log.warning("spare_volume_stays", reason=str(error))
