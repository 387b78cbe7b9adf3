"""Making sessions in steps: whole in the end, or as if nobody had begun."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self, TypeVar

import structlog

from services.session.domain.copies import ABANDONED_MICROS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from services.session.domain.copies import CopyStore, CopyTransaction
    from services.session.domain.news import News

T = TypeVar("T")

_EVERY_SECONDS: Final = 60.0

_log = structlog.get_logger("session.copying")


class Copying:
    """Runs the steps of copies, and removes what is left of those that fail.

    What a process leaves that dies over it is removed when one begins the next copy, or deletes a
    session: of one with a long log the most is left to this, since other writers would have to wait
    for it. Used as an async context manager, which ends once everything is cleared away.
    """

    def __init__(self, store: CopyStore) -> None:
        self._store = store
        self._tasks = asyncio.TaskGroup()
        self._sweeping = self._again = self._closing = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._sweep_later()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._closing = True
        await self._tasks.__aexit__(None, None, None)

    def hear(self, news: News) -> None:
        """Removes what there is to be removed of a session that was deleted."""
        if news.deleted:
            self._sweep_later()

    async def run(self) -> None:
        """Looks now and then for what others have left. Works until cancelled."""
        while True:
            self._sweep_later()
            await asyncio.sleep(_EVERY_SECONDS)

    async def step(self, fn: Callable[[CopyTransaction], T]) -> T:
        """Runs one step. Raises what `fn` raises."""
        return await self._store.step(fn)

    @asynccontextmanager
    async def making(
        self, session_id: str, begin: Callable[[CopyTransaction], T]
    ) -> AsyncIterator[T]:
        """Runs the first step of a session, and gives what it answers.

        When the body fails, be it that its caller went away, what was begun is removed: by nobody
        else, since an id that is taken fails the first step.
        """
        self._sweep_later()
        beginning = asyncio.ensure_future(self._store.step(begin))
        try:
            begun = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            self._tasks.create_task(self._undo(beginning, session_id))
            raise
        try:
            yield begun
        except BaseException:
            # Shielded: who is cancelled goes at once, and it is removed all the same.
            await asyncio.shield(self._tasks.create_task(self._discard(session_id)))
            raise

    async def _undo(self, beginning: asyncio.Future[T], session_id: str) -> None:
        """Removes a session whose first step nobody waits for any more, if it came about."""
        await asyncio.wait([beginning])
        if not beginning.cancelled() and beginning.exception() is None:
            await self._discard(session_id)

    def _sweep_later(self) -> None:
        self._again = self._sweeping
        if not self._sweeping:
            self._sweeping = True
            self._tasks.create_task(self._sweep())

    async def _sweep(self) -> None:
        try:
            for session_id in await self._store.step(
                lambda tx: tx.abandoned(tx.now() - ABANDONED_MICROS)
            ):
                while not await self._piece(session_id):
                    if self._closing:  # the rest is for the process that comes next
                        return
                _log.info("remains_removed", session_id=session_id)
        except Exception as error:  # noqa: BLE001  # tried again before long
            _log.warning("sweep_failed", cause=repr(error))
        finally:
            self._sweeping = False
        if self._again:  # for what came while it was looked
            self._sweep_later()

    async def _piece(self, session_id: str) -> bool:
        """Removes a piece of a session. Whether it is gone."""
        return await self._store.step(lambda tx: tx.discard(session_id))

    async def _discard(self, session_id: str) -> None:
        try:
            while not await self._piece(session_id):
                pass
        except Exception as error:  # noqa: BLE001  # a later sweep finds it
            _log.warning("copy_not_removed", session_id=session_id, cause=repr(error))
