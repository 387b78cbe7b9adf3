"""The sessions that this brain is at work on, and no more than it can carry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

import structlog

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = structlog.get_logger("brain.pool")

RETRY_AFTER = 1.0
"""Seconds after which a full brain may be asked again."""


class BrainPool:
    """Runs one worker per session. A worker outlives the call that woke it.

    The session service may go away while its `Wake` is open; the worker goes on under its lease,
    and a later `Wake` of the same session waits for it and then sees what is left to do.
    """

    def __init__(self, work: Callable[[str], Awaitable[int]], max_sessions: int) -> None:
        self._work = work
        self._max_sessions = max_sessions
        self._outcomes: dict[str, asyncio.Future[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Stops all work where it is: another brain goes on from the log."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def drain(self, seconds: float) -> None:
        """Gives what is being worked on so long to end by itself."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    @property
    def busy(self) -> int:
        """How many sessions are being worked on."""
        return len(self._outcomes)

    async def wake(self, session_id: str) -> int:
        """Works on a session until it needs no brain; answers the lease's generation.

        Raises what the worker raises, and RESOURCE_EXHAUSTED when the pool is full.
        """
        while (earlier := self._outcomes.get(session_id)) is not None:
            # It may be giving its lease back just now: what this call is for can have come since.
            await asyncio.shield(earlier)
        if len(self._outcomes) >= self._max_sessions:
            raise DroverError(
                Reason.RESOURCE_EXHAUSTED,
                f"this brain is at work on {self._max_sessions} sessions",
                retry_after=RETRY_AFTER,
            )
        outcome = self._outcomes[session_id] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(session_id, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(outcome)

    async def _run(self, session_id: str, outcome: asyncio.Future[int]) -> None:
        try:
            generation = await self._work(session_id)
        except asyncio.CancelledError:
            outcome.cancel()
            raise
        except Exception as error:  # noqa: BLE001  # handed to whoever waits
            if isinstance(error, DroverError):
                _log.info("work_stopped", session_id=session_id, reason=error.reason)
            else:
                _log.exception("work_failed", session_id=session_id)
            outcome.set_exception(error)
            outcome.exception()  # seen, even where nobody waits any more
        else:
            outcome.set_result(generation)
        finally:
            del self._outcomes[session_id]
