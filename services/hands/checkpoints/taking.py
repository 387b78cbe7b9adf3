"""Taking one checkpoint: safe whenever the process dies, and harmless when anything fails."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError
from services.hands.checkpoints.archiver import ArchiveFailed
from services.hands.domain.address import session_of
from services.hands.domain.checkpoint import Checkpoint, Origin
from storage.objects import ObjectsAway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chassis.ids import IdSource
    from services.hands.checkpoints.archiver import Archiver
    from services.hands.checkpoints.metrics import CheckpointMetrics
    from services.hands.checkpoints.origins import Origins
    from services.hands.checkpoints.pruning import Pruner
    from services.hands.domain.checkpoint import Checkpoints
    from services.hands.workspace import Workspaces
    from storage.objects import Objects

SUFFIX: Final = ".tar.gz"

_log = structlog.get_logger("hands.checkpoints")


class TakeFailed(Exception):  # noqa: N818  # something that happens
    """No checkpoint was taken. `lasting`: nor will one be before the workspace changes; `away`: nor
    of any other workspace, as long as the store or the database is away.
    """

    def __init__(self, why: str, *, lasting: bool, away: bool) -> None:
        super().__init__(why)
        self.lasting = lasting
        self.away = away


class _Overtaken(Exception):  # noqa: N818  # something that happens
    """The volume is older than what the store has."""


@dataclass(frozen=True, slots=True)
class Taker:
    """Takes checkpoints of the volumes on this machine."""

    rows: Checkpoints
    objects: Objects
    workspaces: Workspaces
    origins: Origins
    archiver: Archiver
    pruner: Pruner
    metrics: CheckpointMetrics
    ids: IdSource

    async def take(self, where: str) -> None:
        """Takes a checkpoint of a workspace that has changed since the last. Raises `TakeFailed`.

        The object is noted before it is stored, counts once it is, and the one before it is deleted
        after that: a process that dies in between leaves nothing that is not deleted later.
        """
        began = time.monotonic()
        try:
            size = await self._take(where)
        except _Overtaken:
            self._end(where, "overtaken", began)
        except (ArchiveFailed, ObjectsAway, DroverError, OSError) as error:
            self.metrics.count("take", "failed", 0)
            lasting = isinstance(error, ArchiveFailed) and error.lasting
            away = isinstance(error, ObjectsAway | DroverError)
            raise TakeFailed(str(error), lasting=lasting, away=away) from error
        else:
            self._end(where, "unchanged" if size is None else "done", began, size or 0)

    async def _take(self, where: str) -> int | None:
        volume = self.workspaces.find(where)
        if volume is None:
            raise _Overtaken
        origin = await asyncio.to_thread(self._origin, where)
        newest = await self.rows.newest(where)
        known = newest is not None and newest.id == origin.checkpoint
        checkpoint_id = self.ids("ckpt")
        name = f"{where}/{checkpoint_id}{SUFFIX}"
        before = ""

        async def store(archive: AsyncIterator[bytes]) -> None:
            nonlocal before
            found = await self.rows.begin(where, checkpoint_id, name, origin)
            if found is None:
                raise _Overtaken
            before = found
            await self.objects.put(name, archive)

        with self.pruner.uploading(checkpoint_id):
            try:
                unless = origin.fingerprint if known else ""
                packed = await self.archiver.pack(volume, unless, store)
                if packed is None:
                    return None
                taken = Checkpoint(checkpoint_id, name, origin.volume, packed.size, packed.digest)
                counts = await self.rows.commit(taken, before)
            except BaseException:
                self.pruner.drop(checkpoint_id)
                raise
        if not counts:
            raise _Overtaken
        if packed.left_out:
            _log.warning(
                "checkpoint_left_out",
                session_id=session_of(where),
                kinds=dict(packed.left_out),
                examples=packed.names,
            )
        now = Origin(origin.volume, checkpoint_id, packed.fingerprint)
        with suppress(OSError):  # the next one is then taken though nothing has changed
            await asyncio.to_thread(self.origins.write, where, now)
        self.pruner.wake()
        return packed.size

    def _origin(self, where: str) -> Origin:
        """Which volume it is; one of which nothing is known is given a name first."""
        origin = self.origins.read(where)
        if not origin.volume:
            origin = Origin(self.ids("vol"), origin.checkpoint, origin.fingerprint)
            self.origins.write(where, origin)
        return origin

    def _end(self, where: str, outcome: str, began: float, size: int = 0) -> None:
        seconds = time.monotonic() - began
        self.metrics.count("take", outcome, seconds, size)  # type: ignore[arg-type]
        if outcome == "done":
            _log.info(
                "checkpoint_taken",
                session_id=session_of(where),
                bytes=size,
                seconds=round(seconds, 3),
            )
