"""Seeing to it that the hand of a session that has ended goes, however often it takes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from services.session import outstanding
from services.session.domain.session import MICROS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from services.session.domain.news import News
    from services.session.domain.ports import HandRelease, SessionStore, Transaction
    from services.session.domain.session import SessionRef

_BATCH: Final = 10
_LEASE_MICROS: Final = 15_000_000
"""For so long a batch is this process's alone. A hand that is released twice suffers no harm."""

_log = structlog.get_logger("session.hands")


class Hands(Protocol):
    """The hands service, as far as sessions end."""

    async def release(self, ref: SessionRef, generation: int, *, purge: bool) -> None:
        """Ends a session's hand for good; `generation` is the last lease.

        With `purge` its workspace goes too. Raises `DroverError`.
        """
        ...


class Secrets(Protocol):
    """The vault proxy, as far as it keeps secrets of sessions."""

    async def forget(self, ref: SessionRef) -> None:
        """Has all secrets of a session removed. Raises `DroverError`."""
        ...


class HandReleases:
    """Works off the list of hands to release, which outlives this process.

    The secrets of an ended session go with its hand, and the files of a deleted one behind it,
    since the hand may leave some to the last: `files_due` is called when there are some to delete.
    """

    def __init__(
        self,
        store: SessionStore,
        hands: Hands,
        secrets: Secrets | None = None,
        files_due: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._hands = hands
        self._secrets = secrets
        self._files_due = files_due
        self._due = asyncio.Event()
        self._leased: dict[int, HandRelease] = {}
        self._away_until = 0.0

    def hear(self, news: News) -> None:
        """Looks at the list when a session has ended."""
        if news.ends:
            self._due.set()

    async def run(self) -> None:
        """Works until cancelled; what it has not done then is another's at once."""
        try:
            while True:
                await self._look()
        finally:
            if self._leased:
                with suppress(DroverError):  # a database that is gone keeps them until they lapse
                    await self._postpone(list(self._leased.values()), 0)

    async def _look(self) -> None:
        """Does what is due, then waits until there may be more."""
        away = False
        try:
            away = not await self.release_due()
        except DroverError as error:
            _log.warning("releases_failed", reason=error.reason, message=error.message)
        await outstanding.pause(self._due, away=away)

    async def release_due(self) -> bool:
        """Releases every hand whose time has come; false while the hands do not answer.

        That nothing is due, a moment after they did not, says nothing of them.
        """
        now = asyncio.get_running_loop().time
        while releases := await self._lease():
            for place, release in enumerate(releases):
                if not await self._release(release):
                    # They are due as before: who waits for the whole batch would wait in vain.
                    await self._postpone(releases[place:], round(outstanding.AWAY_SECONDS * MICROS))
                    self._away_until = now() + 2 * outstanding.AWAY_SECONDS
                    return False
                self._away_until = 0.0
        return now() >= self._away_until

    async def _lease(self) -> Sequence[HandRelease]:
        """The next batch, this process's alone."""
        leasing = asyncio.ensure_future(
            self._store.write(lambda tx: tx.lease_releases(_BATCH, _LEASE_MICROS))
        )
        try:
            releases = await asyncio.shield(leasing)
        except asyncio.CancelledError:
            with suppress(DroverError):  # whatever came of it, the caller ends here
                self._leased |= {release.id: release for release in await leasing}
            raise
        self._leased |= {release.id: release for release in releases}
        return releases

    async def _release(self, release: HandRelease) -> bool:
        """Tries to release a hand; false when the hands do not answer."""
        forgotten = await self._forget(release)
        try:
            await self._hands.release(release.ref, release.generation, purge=release.purge)
        except DroverError as error:
            if error.reason is not Reason.NOT_FOUND:
                _log.info("release_failed", session_id=release.ref.session_id, reason=error.reason)
                if error.reason in outstanding.AWAY:
                    return False
                await self._postpone([release], outstanding.delay(release.attempts))
                return True
        if not forgotten:  # to release a hand once more does no harm
            await self._postpone([release], outstanding.delay(release.attempts))
            return True
        await self._finish(release)
        return True

    async def _finish(self, release: HandRelease) -> None:
        def write(tx: Transaction) -> None:
            tx.finish_release(release.id)
            if release.purge:
                tx.release_files(release.ref)

        await self._store.write(write)
        del self._leased[release.id]
        if release.purge and self._files_due is not None:
            self._files_due()

    async def _forget(self, release: HandRelease) -> bool:
        """Has what is kept in secret for the session removed, whatever becomes of its hand."""
        if not release.secrets or self._secrets is None:
            return True
        try:
            await self._secrets.forget(release.ref)
        except DroverError as error:
            _log.info("secrets_kept", session_id=release.ref.session_id, reason=error.reason)
            return False
        return True

    async def _postpone(self, releases: Sequence[HandRelease], delay: int) -> None:
        def write(tx: Transaction) -> None:
            for release in releases:
                tx.postpone_release(release.id, delay)

        await self._store.write(write)
        for release in releases:
            del self._leased[release.id]
