"""What time does to files: their bytes go when they expire, what is known of them later."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

import structlog
from sqlalchemy import delete, select

from catalogue.resources.stamps import micros
from chassis.errors import DroverError
from services.registry.domain.files.file import KEPT_AFTER_EXPIRY
from services.registry.store.files import rows
from services.registry.store.files.tables import ENDED_SESSIONS, FILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from chassis.clock import Clock
    from services.registry.store.objects.kept import KeptObjects
    from storage import Database

SWEEP_SECONDS: Final = 30.0
LATE: Final = timedelta(days=1)
"""How long something may still come for a session that was deleted."""

_AT_ONCE: Final = 100

_F = FILES.c
_E = ENDED_SESSIONS.c
_log = structlog.get_logger("registry.files")


class FileSweep:
    """Goes over the files now and then."""

    def __init__(self, database: Database, objects: KeptObjects, clock: Clock) -> None:
        self._database = database
        self._objects = objects
        self._clock = clock

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            try:
                await self.sweep()
            except DroverError as error:
                _log.warning("files_not_swept", reason=error.reason)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Does all that is due by now."""
        now = self._clock.now()
        while due := await self._database.read(partial(_expired, micros(now))):
            for workspace_id, some in groupby(due, key=lambda one: one[0]):
                ids = [file_id for _, file_id in some]
                count = await self._database.write(partial(_expire, workspace_id, ids, micros(now)))
                if count:  # else another process has seen to them
                    _log.info("files_expired", workspace_id=workspace_id, count=count)
            self._objects.wake()
        known_until = micros(now - KEPT_AFTER_EXPIRY)
        while await self._database.write(partial(_forget_files, known_until)) >= _AT_ONCE:
            pass
        await self._database.write(partial(_forget_sessions, micros(now - LATE)))


def _expired(now: int, connection: Connection) -> Sequence[tuple[str, str]]:
    """Workspaces and ids of some files whose time is over, though their bytes are there."""
    query = (
        select(_F.workspace_id, _F.id)
        .where(_F.expires_at <= now, _F.object.is_not(None))
        .order_by(_F.expires_at)
        .limit(_AT_ONCE)
    )
    return sorted((workspace_id, file_id) for workspace_id, file_id in connection.execute(query))


def _expire(workspace_id: str, ids: Sequence[str], now: int, connection: Connection) -> int:
    return rows.expire(connection, workspace_id, ids, now)


def _forget_files(until: int, connection: Connection) -> int:
    some = select(_F.id).where(_F.expires_at <= until, _F.object.is_(None))
    some = some.order_by(_F.expires_at).limit(_AT_ONCE)
    return connection.execute(delete(FILES).where(_F.id.in_(some))).rowcount


def _forget_sessions(until: int, connection: Connection) -> None:
    connection.execute(delete(ENDED_SESSIONS).where(_E.ended_at <= until))
