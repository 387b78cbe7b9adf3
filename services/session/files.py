"""Seeing to it that the files of sessions that are no more are deleted, however often it takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from services.session import outstanding
from services.session.domain.session import MICROS

if TYPE_CHECKING:
    from services.session.domain.file_ports import FileRelease
    from services.session.domain.ports import SessionStore, Transaction
    from services.session.domain.session import SessionRef

_BATCH: Final = 20
_LEASE_MICROS: Final = 60_000_000
"""For so long a batch is this process's alone. Files that are deleted twice are gone once."""

_log = structlog.get_logger("session.files")


class Files(Protocol):
    """Where files are, as far as sessions end."""

    async def delete(self, ref: SessionRef, file_id: str) -> None:
        """Deletes a file of a session. None is no error. Raises `DroverError`."""
        ...

    async def delete_all(self, ref: SessionRef) -> None:
        """Deletes all files of a session, and has none taken for it. Raises `DroverError`."""
        ...

    async def reopen(self, ref: SessionRef) -> None:
        """Has files be taken for a session again. Raises `DroverError`."""
        ...


class FileReleases:
    """Works off the list of files to delete, which outlives this process."""

    def __init__(self, store: SessionStore, files: Files) -> None:
        self._store = store
        self._files = files
        self._due = asyncio.Event()
        self._away_until = 0.0

    def look(self) -> None:
        """Has the list looked at: something new is on it."""
        self._due.set()

    async def run(self) -> None:
        """Works until cancelled. What it has leased then comes due again before long."""
        while True:
            away = False
            try:
                away = not await self.release_due()
            except DroverError as error:
                _log.warning("file_releases_failed", reason=error.reason, message=error.message)
            await outstanding.pause(self._due, away=away)

    async def release_due(self) -> bool:
        """Deletes every file whose time has come; false while the registry does not answer.

        That nothing is due, a moment after it did not, says nothing of it.
        """
        now, away = asyncio.get_running_loop().time, False
        while not away and (due := await self._lease()):
            done: list[int] = []
            later: list[tuple[int, int]] = []
            for release in due:
                reason = None if away else await self._try(release)
                away = away or reason in outstanding.AWAY
                if away:
                    later.append((release.id, round(outstanding.AWAY_SECONDS * MICROS)))
                elif reason is not None:
                    later.append((release.id, outstanding.delay(release.attempts)))
                else:
                    done.append(release.id)
            await self._note(done, later)
            self._away_until = now() + 2 * outstanding.AWAY_SECONDS if away else 0.0
        return now() >= self._away_until

    async def _lease(self) -> list[FileRelease]:
        return await self._store.write(lambda tx: tx.lease_file_releases(_BATCH, _LEASE_MICROS))

    async def _try(self, release: FileRelease) -> Reason | None:
        """Deletes what is to be deleted; why not, if so."""
        try:
            if release.file_id:
                await self._files.delete(release.ref, release.file_id)
            else:
                await self._delete_all(release.ref)
        except DroverError as error:
            if error.reason is not Reason.NOT_FOUND:
                _log.info("files_kept", session_id=release.ref.session_id, reason=error.reason)
                return error.reason
        return None

    async def _delete_all(self, ref: SessionRef) -> None:
        if not await self._is_there(ref):
            await self._files.delete_all(ref)
        if await self._is_there(ref):  # since just now, perhaps
            await self._files.reopen(ref)

    async def _is_there(self, ref: SessionRef) -> bool:
        """Whether a session was imported again that had been deleted."""
        return await self._store.read(lambda tx: tx.state(ref)) is not None

    async def _note(self, done: list[int], later: list[tuple[int, int]]) -> None:
        def write(tx: Transaction) -> None:
            tx.finish_file_releases(done)
            for release_id, delay in later:
                tx.postpone_file_release(release_id, delay)

        await self._store.write(write)
