"""Restoring a workspace, before a sandbox starts in it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.backends.port import BackendUnavailable
from services.hands.checkpoints.archiver import ArchiveFailed
from services.hands.domain.address import session_of
from services.hands.domain.checkpoint import Origin
from storage.objects import ObjectGone, ObjectsAway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from chassis.ids import IdSource
    from services.hands.checkpoints.archiver import Archiver
    from services.hands.checkpoints.metrics import CheckpointMetrics
    from services.hands.checkpoints.origins import Origins
    from services.hands.domain.checkpoint import Checkpoint
    from services.hands.workspace import Workspaces
    from storage.objects import Objects

SETTING: Final = "DROVER_HANDS_CHECKPOINTS"
_SAFE: Final = "The workspace's last checkpoint is kept, and no empty workspace is put in its place"

_log = structlog.get_logger("hands.checkpoints")


@dataclass(frozen=True, slots=True)
class Restorer:
    """Makes volumes of checkpoints. `objects` is None where no store is configured."""

    objects: Objects | None
    workspaces: Workspaces
    origins: Origins
    archiver: Archiver
    metrics: CheckpointMetrics
    ids: IdSource
    mark: Callable[[Path], None] | None = None
    """Called with each volume that was filled, before it is in its place. Blocks."""

    async def restore(self, where: str, checkpoint: Checkpoint) -> None:
        """Puts a checkpoint in the place of a workspace that is missing or older.

        All or nothing, and nothing where its digest is another. Raises `BackendUnavailable`, which
        says what to do, and `OSError`.
        """
        began = time.monotonic()
        try:
            await self._restore(where, checkpoint)
        except (ArchiveFailed, ObjectsAway, OSError) as error:
            why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            self.metrics.count("restore", "failed", 0)
            _log.error(
                "checkpoint_not_restored",
                session_id=session_of(where),
                checkpoint=checkpoint.name,
                reason=why,
            )
            raise BackendUnavailable(_told(error, why)) from error
        seconds = time.monotonic() - began
        self.metrics.count("restore", "done", seconds, checkpoint.size)
        _log.info(
            "checkpoint_restored",
            session_id=session_of(where),
            bytes=checkpoint.size,
            seconds=round(seconds, 3),
        )

    async def _restore(self, where: str, checkpoint: Checkpoint) -> None:
        if self.objects is None:
            raise ObjectsAway(f"no store is configured ({SETTING})")
        volume = await self.workspaces.prepare(where)
        try:
            pieces = _checked(self.objects.read(checkpoint.name, checkpoint.size), checkpoint)
            fingerprint = await self.archiver.unpack(volume, pieces)
            if self.mark is not None:
                await asyncio.to_thread(self.mark, volume.root)
            # In this order: whatever volume is at the address, its origin is never a newer one's.
            if (old := self.workspaces.find(where)) is not None:
                await self.workspaces.remove(old)
            origin = Origin(self.ids("vol"), checkpoint.id, fingerprint)
            await asyncio.to_thread(self.origins.write, where, origin)
            await self.workspaces.place(where, volume)
        except BaseException:
            await self.workspaces.remove(volume)
            raise


async def _checked(pieces: AsyncIterator[bytes], checkpoint: Checkpoint) -> AsyncIterator[bytes]:
    digest = sha256()
    async for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.digest() != checkpoint.digest:
        raise ArchiveFailed("it is not what was stored: its digest is another", lasting=True)


def _told(error: Exception, why: str) -> str:
    if isinstance(error, ArchiveFailed) and error.lasting:
        text = f"this session's workspace could not be restored: its checkpoint is damaged ({why})"
        return f"{text}. {_SAFE}: the operator can put the stored object back from a copy"
    if isinstance(error, ObjectGone):
        text = "this session's workspace could not be restored: its checkpoint is not in the store"
        return f"{text}. The operator can put it back from a copy, and check {SETTING}"
    text = f"this session's workspace could not be restored from its checkpoint yet: {why}"
    return f"{text}. {_SAFE}: try again later; if it lasts, the operator has to look at the store"
