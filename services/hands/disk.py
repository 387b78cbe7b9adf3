"""The disk watcher: ends the sandbox that fills the disk (CASES S6).

File systems have no quota for a directory that every machine could use, so sizes are measured. A
walk is long where there are many files; but a workspace cannot outgrow its limit before the whole
file system has grown by what is left of it, and that is asked for at no cost. So one that was made
since the last look is not measured either: it was empty then.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.archive.bounds import PARTS
from services.hands.measure import ENTRY_BYTES, size_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from chassis.clock import Clock
    from services.hands.hand import Hand
    from services.hands.pool import Pool
    from services.hands.workspace import Workspaces

_EVERY: Final = 0.5
_STALE: Final = 30.0
"""Seconds after which a workspace in use is measured again: others may have freed meanwhile."""
_SLACK: Final = 16 * 1024 * 1024
"""Bytes that a workspace which is too large may still grow by, so that an agent can tidy it up."""
_FEW: Final = 0.01
"""The share of a file system's inodes below which they are scarce."""

_COUNTED: Final = (*PARTS, "memory")
"""What a sandbox may write to: what was brought into it is not its doing."""

_log = structlog.get_logger("hands.disk")


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """Bytes that a workspace may have, where its hand has no limit of its own, and that must stay
    free beside all of them.
    """

    workspace_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class _Room:
    """How many bytes the file system of the workspaces has in use, and whether few are left."""

    used: int
    scarce: bool


@dataclass(slots=True)
class _Measured:
    """A workspace's size, and how full the file system was then."""

    hand: Hand
    size: int
    used: int
    at: float


class DiskWatcher:
    """Watches the workspaces of the hands that live."""

    def __init__(
        self, pool: Pool, workspaces: Workspaces, limits: DiskLimits, clock: Clock
    ) -> None:
        self._pool = pool
        self._workspaces = workspaces
        self._limits = limits
        self._clock = clock
        self._before: _Room | None = None
        self._measured: dict[str, _Measured] = {}
        self._too_large: dict[str, int] = {}

    async def run(self) -> None:
        """Looks twice a second until it is cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await self.look()
            except OSError as error:
                _log.warning("disk_not_measured", cause=error.strerror)

    async def look(self) -> None:
        """Looks once."""
        live = self._pool.live()
        for session_id in self._measured.keys() - live.keys():
            del self._measured[session_id]
        for session_id in [*self._too_large]:
            if self._workspaces.find(session_id) is None:
                del self._too_large[session_id]
        room = self._room()
        if self._before is not None and not room.scarce:
            self._begin(live, self._before)
        self._before = room
        for session_id, hand in live.items():
            if self._may_have_outgrown(session_id, hand, room):
                await self._measure(session_id, hand, room)
                room = self._room()

    def _begin(self, live: Mapping[str, Hand], before: _Room) -> None:
        """Notes that workspaces were empty at the last look which were made since then."""
        now = self._clock.monotonic()
        for session_id, hand in live.items():
            if hand.is_fresh and session_id not in self._measured:
                self._measured[session_id] = _Measured(hand, 0, before.used, now)

    def _room(self) -> _Room:
        system = os.statvfs(self._workspaces.directory)
        used = (system.f_blocks - system.f_bfree) * system.f_frsize
        used += (system.f_files - system.f_ffree) * ENTRY_BYTES
        scarce = system.f_bavail * system.f_frsize < self._limits.free_bytes
        return _Room(used, scarce or system.f_favail < system.f_files * _FEW)

    def _may_have_outgrown(self, session_id: str, hand: Hand, room: _Room) -> bool:
        before = self._measured.get(session_id)
        if before is None or before.hand is not hand or room.scarce:
            return True
        if room.used - before.used >= self._allowed(session_id, hand) - before.size:
            return True
        return hand.busy and self._clock.monotonic() - before.at >= _STALE

    async def _measure(self, session_id: str, hand: Hand, room: _Room) -> None:
        before = self._measured.get(session_id)
        if before is not None and before.hand is not hand:
            before = None
        now = self._clock.monotonic()
        root = self._workspaces.place_of(session_id)
        size = await asyncio.to_thread(_size, root)
        self._measured[session_id] = _Measured(hand, size, room.used, now)
        self._remember(session_id, size, self._limit(hand), first=before is None)
        if size > self._allowed(session_id, hand):
            await self._end(session_id, hand, "its files take more of the disk than they may")
            self._too_large[session_id] = await asyncio.to_thread(_size, root)
        elif room.scarce and before is not None and size > before.size:
            await self._end(session_id, hand, "it wrote to a disk that is almost full")

    def _limit(self, hand: Hand) -> int:
        return hand.workspace_bytes or self._limits.workspace_bytes

    def _allowed(self, session_id: str, hand: Hand) -> int:
        if session_id in self._too_large:
            return self._too_large[session_id] + _SLACK
        return self._limit(hand)

    def _remember(self, session_id: str, size: int, limit: int, *, first: bool) -> None:
        """A workspace that was found too large may shrink, and grow no more until it is not."""
        if size <= limit:
            self._too_large.pop(session_id, None)
        elif session_id in self._too_large:
            self._too_large[session_id] = min(size, self._too_large[session_id])
        elif first:
            self._too_large[session_id] = size

    async def _end(self, session_id: str, hand: Hand, why: str) -> None:
        _log.warning("disk_limit", session_id=session_id, hand_id=hand.id, reason=why)
        await hand.kill(why)


def _size(root: Path) -> int:
    return sum(size_of(root / part) for part in _COUNTED)
