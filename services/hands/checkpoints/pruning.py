"""Deleting checkpoints that count no more, until they are gone."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError
from storage.objects import ObjectsAway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.hands.checkpoints.metrics import CheckpointMetrics
    from services.hands.domain.checkpoint import Checkpoints
    from storage.objects import Objects

_AT_ONCE: Final = 100
_MOST_FAILURES: Final = 3
_FIRST_PAUSE: Final = 1.0  # s
_LAST_PAUSE: Final = 300.0  # s

_log = structlog.get_logger("hands.checkpoints")


class Pruner:
    """Deletes what the rows say is to be deleted."""

    def __init__(self, rows: Checkpoints, objects: Objects, metrics: CheckpointMetrics) -> None:
        self._rows = rows
        self._objects = objects
        self._metrics = metrics
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

    def wake(self) -> None:
        """There may be something to delete."""
        self._awake.set()

    async def run(self) -> None:
        """Deletes until it is cancelled; the longer nothing works, the rarer it tries."""
        pause = _FIRST_PAUSE
        while True:
            await self._awake.wait()
            self._awake.clear()
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
        failures: dict[str, ObjectsAway] = {}
        while len(failures) < _MOST_FAILURES:
            left = self._uploading | failures.keys()
            found = await self._rows.to_delete(_AT_ONCE + len(left))
            free = [(one, name) for one, name in found if one not in left]
            if not free:
                break
            for checkpoint_id, name in free:
                try:
                    await self._objects.delete(name)
                except ObjectsAway as error:
                    failures[checkpoint_id] = error
                    if len(failures) >= _MOST_FAILURES:
                        break
                else:
                    await self._rows.forget(checkpoint_id)
        for failure in failures.values():
            raise failure
