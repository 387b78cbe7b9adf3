"""Deleting checkpoints that count no more, until they are gone."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError
from storage.objects import ObjectsAway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chassis.clock import Clock
    from services.hands.checkpoints.metrics import CheckpointMetrics
    from services.hands.domain.checkpoint import Checkpoints, Dropped
    from storage.objects import Objects

SETTLE_SECONDS: Final = 120.0
"""How long after its upload broke off an object may come to be: a store that has all of a request
goes on with it, though its client is gone, and may be slow.
"""

_AT_ONCE: Final = 100
_MOST_FAILURES: Final = 3
_FIRST_PAUSE: Final = 1.0  # s
_LAST_PAUSE: Final = 300.0  # s

_log = structlog.get_logger("hands.checkpoints")


class Pruner:
    """Deletes what the rows say is to be deleted.

    What may have been stored after its deletion is deleted twice, and its row kept until then.
    """

    def __init__(
        self, rows: Checkpoints, objects: Objects, metrics: CheckpointMetrics, clock: Clock
    ) -> None:
        self._rows = rows
        self._objects = objects
        self._metrics = metrics
        self._clock = clock
        self._unsettled: dict[str, float] = {}  # when they are to be deleted again
        self._uploading: set[str] = set()
        self._to_drop: set[str] = set()
        self._awake = asyncio.Event()
        self._awake.set()

    @contextmanager
    def uploading(self, checkpoint_id: str) -> Iterator[None]:
        """While the body runs that object is left alone: it may come to be after its deletion."""
        self._uploading.add(checkpoint_id)
        try:
            yield
        finally:
            self._uploading.discard(checkpoint_id)
            self.wake()

    def drop(self, checkpoint_id: str) -> None:
        """Has one deleted that does not count. Returns at once."""
        self._to_drop.add(checkpoint_id)
        self.wake()

    @property
    def unsettled(self) -> int:
        """How many were deleted that may come to be all the same."""
        return len(self._unsettled)

    def wake(self) -> None:
        """There may be something to delete."""
        self._awake.set()

    async def run(self) -> None:
        """Deletes until it is cancelled; the longer nothing works, the rarer it tries."""
        pause = _FIRST_PAUSE
        while True:
            await self._woken()
            try:
                await self.prune()
            except (DroverError, ObjectsAway) as error:
                self._metrics.undeleted()
                _log.warning("checkpoint_not_deleted", reason=str(error), again_in=pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
                self._awake.set()
            else:
                pause = _FIRST_PAUSE

    async def prune(self) -> None:
        """Deletes all that is to be deleted by now. Raises `DroverError` and `ObjectsAway`.

        One that cannot be deleted keeps no other; after a few the store is taken to be away.
        """
        for checkpoint_id in [*self._to_drop]:
            await self._rows.drop(checkpoint_id)
            self._to_drop.discard(checkpoint_id)
        settled = self._take_settled()
        failures: dict[str, ObjectsAway] = {}
        while len(failures) < _MOST_FAILURES:
            left = self._uploading | self._unsettled.keys() | failures.keys()
            found = await self._rows.to_delete(_AT_ONCE + len(left))
            free = [one for one in found if one.id not in left]
            if not free:
                break
            for one in free:
                try:
                    await self._delete(one, for_good=one.stored or one.id in settled)
                except ObjectsAway as error:
                    failures[one.id] = error
                    if len(failures) >= _MOST_FAILURES:
                        break
        for failure in failures.values():
            raise failure

    def _take_settled(self) -> set[str]:
        """Those whose time has come; one that cannot be deleted now begins anew."""
        now = self._clock.monotonic()
        settled = {one for one, at in self._unsettled.items() if at <= now}
        for checkpoint_id in settled:
            del self._unsettled[checkpoint_id]
        return settled

    async def _delete(self, one: Dropped, *, for_good: bool) -> None:
        await self._objects.delete(one.name)
        if for_good:
            await self._rows.forget(one.id)
        else:
            self._unsettled[one.id] = self._clock.monotonic() + SETTLE_SECONDS

    async def _woken(self) -> None:
        """Waits until there may be something to delete, or to delete again."""
        again = min(self._unsettled.values(), default=None)
        wait = None if again is None else again - self._clock.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._awake.wait()
        self._awake.clear()
