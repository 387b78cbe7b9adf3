"""Taking lease generations: durably, or at once where a stale one could misuse nothing.

See docs/adr/0027.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from services.hands.domain import fence

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, MutableMapping

    from services.hands.domain.journal import Journal
    from services.hands.under_way import Session


_log = structlog.get_logger("hands.fencing")


class Fencing:
    """The fences of `sessions`, which makes what it lacks. `tasks` owns what nobody waits for."""

    def __init__(
        self, journal: Journal, sessions: MutableMapping[str, Session], tasks: asyncio.TaskGroup
    ) -> None:
        self._journal = journal
        self._sessions = sessions
        self._tasks = tasks

    async def keep(self, session_id: str, generation: int) -> None:
        """Takes a generation, durably.

        Raises LEASE_LOST for one older than the newest seen, and NOT_FOUND for another workspace.
        """
        if self._is_news(session_id, generation):
            await self._write(session_id, generation)

    async def admit(self, session_id: str, generation: int) -> asyncio.Future[None]:
        """Takes a generation; the future is done once that is durable, or fails as it cannot be.

        Raises as `keep` does, for the same ones. Whatever is written for the session
        from now on is written after this.
        """
        loop = asyncio.get_running_loop()
        kept: asyncio.Future[None] = loop.create_future()
        if not self._is_news(session_id, generation):
            kept.set_result(None)
            return kept
        kept.add_done_callback(lambda done: done.cancelled() or done.exception())
        taken: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            loop.call_soon_threadsafe(_settle, taken)

        work = self._write(session_id, generation, tell)
        self._tasks.create_task(_settled(work, kept, taken), name=f"fence {session_id}")
        await taken
        return kept

    def _is_news(self, session_id: str, generation: int) -> bool:
        session = self._sessions[session_id]
        session.check_workspace(session_id)
        highest = session.generation
        # No lease: only the journal knows whether there was one.
        return fence.advance(highest, generation) > highest or generation == 0

    async def _write(
        self, session_id: str, generation: int, taken: Callable[[], None] | None = None
    ) -> None:
        await self._journal.fence(session_id, generation, taken)
        self._sessions[session_id].take(generation)  # looked up now: it may be another one


def _settle(taken: asyncio.Future[None]) -> None:
    if not taken.done():  # told before, or nobody waits any more
        taken.set_result(None)


async def _settled(
    work: Coroutine[None, None, None], kept: asyncio.Future[None], taken: asyncio.Future[None]
) -> None:
    """Hands on what comes of `work`. Raises nothing: what goes wrong is the waiters' matter."""
    try:
        await work
    except Exception as error:  # noqa: BLE001  # raised in the caller
        if not taken.done():
            taken.set_exception(error)
        else:
            _log.warning("fence_not_kept", reason=str(error))
        kept.set_exception(error)
    except BaseException:
        taken.cancel()
        kept.cancel()
        raise
    else:
        _settle(taken)
        kept.set_result(None)
