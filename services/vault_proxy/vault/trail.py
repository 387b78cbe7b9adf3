"""The audit trail: entries are queued by who decides, written in batches by one task."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError
from services.vault_proxy.domain.audit import AuditEntry

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.vault_proxy.domain.audit_ports import AuditStore

_MOST: Final = 10_000
"""Entries that may wait; then those who decide wait."""
_LINGER_SECONDS: Final = 0.05
"""What comes within this time is written together."""
_RETRY_SECONDS: Final = 1.0
_SWEEP_SECONDS: Final = 3_600.0
_BATCH: Final = 1_000

_log = structlog.get_logger("vault_proxy.audit")


class AuditTrail:
    """Implements `Audit`. An async context: what is queued is written before it ends.

    An entry is durable within about a tenth of a second. While the database takes none, they wait
    in memory, and once too many do, so do the requests: none goes unrecorded by a process that
    lives on.
    """

    def __init__(
        self, store: AuditStore, ids: IdSource, clock: Clock, *, most: int = _MOST
    ) -> None:
        self._store = store
        self._ids = ids
        self._clock = clock
        self._most = most
        self._queue: list[tuple[str, AuditEntry]] = []
        self._writing = False
        self._arrived = asyncio.Event()
        self._hurry = asyncio.Event()
        self._written = asyncio.Condition()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing = True
        self._arrived.set()
        self._hurry.set()
        if self._task is not None:
            await self._task

    async def record(self, entry: AuditEntry) -> None:
        """Queues an entry; waits where too many are queued."""
        while not self._has_room():
            async with self._written:
                await self._written.wait_for(self._has_room)
        self._queue.append((self._ids("vaud"), entry))
        self._arrived.set()

    async def flush(self) -> None:
        """Waits until all that is queued now is written."""
        if not self._queue and not self._writing:
            return
        last = self._queue[-1][0] if self._queue else ""
        self._hurry.set()
        async with self._written:
            await self._written.wait_for(
                lambda: not self._writing and (not self._queue or self._queue[0][0] > last)
            )

    async def forget(self, days: int) -> None:
        """Removes what is older, now and then, for ever."""
        while True:
            try:
                before = self._clock.now() - timedelta(days=days)
                while await self._store.forget(before, _BATCH) >= _BATCH:
                    pass
            except DroverError as error:
                _log.warning("audit_not_swept", reason=error.reason)
            await asyncio.sleep(_SWEEP_SECONDS)

    def _has_room(self) -> bool:
        return self._closing or len(self._queue) < self._most

    async def _write(self) -> None:
        while not (self._closing and not self._queue):
            await self._arrived.wait()
            await self._linger()
            self._arrived.clear()
            batch, self._queue = self._queue, []
            self._writing = True
            kept = False
            try:
                if batch:
                    await self._store.append(batch)
                kept = True
            except Exception as error:  # noqa: BLE001  # whatever it is, nothing goes unrecorded
                _log.error("audit_not_written", error=type(error).__name__, entries=len(batch))
            finally:
                self._writing = False
            if not kept:
                self._queue[:0] = batch
                self._arrived.set()
            async with self._written:
                self._written.notify_all()
            if not kept:
                if self._closing:
                    return
                await asyncio.sleep(_RETRY_SECONDS)

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                await self._hurry.wait()
        except TimeoutError:
            pass
        if not self._closing:
            self._hurry.clear()
