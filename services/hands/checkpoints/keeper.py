"""Keeps the workspaces' checkpoints: takes them when hands rest, restores before they start."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.checkpoints.taking import TakeFailed
from services.hands.domain.address import is_of, session_of
from services.hands.domain.checkpoint import is_behind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chassis.clock import Clock
    from services.hands.checkpoints.metrics import CheckpointMetrics
    from services.hands.checkpoints.origins import Origins
    from services.hands.checkpoints.pruning import Pruner
    from services.hands.checkpoints.restoring import Restorer
    from services.hands.checkpoints.taking import Taker
    from services.hands.domain.checkpoint import Checkpoints
    from services.hands.workspace import Workspaces

_FIRST_RETRY: Final = 5.0  # s
_LAST_RETRY: Final = 300.0  # s

_log = structlog.get_logger("hands.checkpoints")


@dataclass(frozen=True, slots=True)
class Pace:
    """When checkpoints are taken: seconds of rest before one, how many at once, and how long a
    service that stops takes them.
    """

    idle_seconds: float = 5.0
    at_once: int = 2
    stop_seconds: float = 5.0


class Keeper:
    """The `Lifecycle` of workspaces that are kept in a store, too.

    `taker` and `pruner` are None where there is no store: then only what the database knows of
    earlier checkpoints is heeded, lest a workspace be replaced by an empty one.
    """

    def __init__(
        self,
        rows: Checkpoints,
        workspaces: Workspaces,
        origins: Origins,
        restorer: Restorer,
        *,
        taker: Taker | None,
        pruner: Pruner | None,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        metrics: CheckpointMetrics,
        pace: Pace,
    ) -> None:
        self._rows = rows
        self._workspaces = workspaces
        self._origins = origins
        self._restorer = restorer
        self._taker = taker
        self._pruner = pruner
        self._tasks = tasks
        self._clock = clock
        self._metrics = metrics
        self._pace = pace
        self._heeded = taker is not None
        self._used: set[str] = set()
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._away = 0
        self._resume_at = 0.0
        self._running: dict[str, asyncio.Task[None]] = {}
        self._restoring = asyncio.Semaphore(2 * pace.at_once)
        self._wake = asyncio.Event()
        self._closed = False
        self._before: Callable[[str], Awaitable[None]] | None = None

    def precede(self, work: Callable[[str], Awaitable[None]]) -> None:
        """Has something done with each workspace before it is stored. It raises nothing."""
        self._before = work

    async def start(self) -> None:
        """Has what dead processes left deleted, and what they did not get to taken."""
        await self._rows.drop_unfinished()
        if self._taker is None:
            self._heeded = await self._rows.any()
            return
        for where in await asyncio.to_thread(self._workspaces.everywhere):
            self._plan(where, self._pace.idle_seconds)

    # the lifecycle of hands

    async def before_start(self, where: str) -> None:
        """Restores a workspace that is not here, or is known to be older than its checkpoint."""
        if not self._heeded:
            return
        newest = await self._rows.newest(where)
        if newest is None:
            return
        if self._workspaces.find(where) is not None:
            origin = await asyncio.to_thread(self._origins.read, where)
            if not is_behind(origin, newest):
                return
        await self._stop(where)
        async with self._restoring:
            await self._restorer.restore(where, newest)

    def used(self, where: str) -> None:
        """No checkpoint is taken of it from now on."""
        if self._taker is not None:
            self._used.add(where)
            self._due.pop(where, None)

    def rested(self, where: str) -> None:
        """One is taken soon."""
        self._used.discard(where)
        self._failures.pop(where, None)
        self._plan(where, self._pace.idle_seconds)

    def ended(self, where: str) -> None:
        """One is taken at once, unless another hand is at work in it already."""
        if where not in self._used:
            self._plan(where, 0.0)

    async def leaves(self, where: str) -> None:
        """Checkpoints are taken of it as of any other that rests."""

    async def holds(self, where: str) -> bool:
        """Whether there is a checkpoint of it."""
        return self._heeded and await self._rows.newest(where) is not None

    async def moved(self, where: str, to: str) -> None:
        """Its checkpoints are the other's."""
        await self._stop(where)
        await self._rows.move(where, to)
        await asyncio.to_thread(self._origins.move, where, to)
        self._forget(where)
        self._plan(to, self._pace.idle_seconds)

    async def purged(self, session_id: str, hand: str | None) -> None:
        """Its checkpoints are deleted, sooner or later."""
        for where in [*self._running]:
            if is_of(where, session_id, hand):
                await self._stop(where)
        await self._rows.purge(session_id, hand)
        for where in await asyncio.to_thread(self._origins.of_session, session_id):
            if is_of(where, session_id, hand):
                self._forget(where)
                await asyncio.to_thread(self._origins.delete, where)
        if self._pruner is not None:
            self._pruner.wake()

    # taking checkpoints

    async def run(self) -> None:
        """Takes checkpoints as they fall due, until it is cancelled."""
        while True:
            self._wake.clear()
            wait = self._take_due(self._clock.monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    async def close(self) -> None:
        """Takes what is still to be taken, as far as there is time for it."""
        self._closed = True
        try:
            async with asyncio.timeout(self._pace.stop_seconds):
                while self._due or self._running:
                    self._take_due(None)
                    if self._running:
                        await asyncio.wait(
                            self._running.values(), return_when=asyncio.FIRST_COMPLETED
                        )
        except TimeoutError:
            count = len({*self._due, *self._running})
            _log.warning("checkpoints_left_to_the_next_start", workspaces=count)
        self._due.clear()
        if left := [*self._running.values()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left)

    def _take_due(self, now: float | None) -> float | None:
        """Starts what is due at that time, or at any; seconds until the next is, if one is."""
        if now is not None and now < self._resume_at:
            return self._resume_at - now
        for where, at in sorted(self._due.items(), key=lambda item: item[1]):
            if len(self._running) >= self._pace.at_once:
                break  # one that ends wakes the loop
            if now is not None and at > now:
                self._metrics.waiting(len(self._due))
                return at - now
            if where in self._running:
                continue  # taken again when that one has ended
            del self._due[where]
            task = self._tasks.create_task(self._take(where), name=f"checkpoint {where}")
            self._running[where] = task
            task.add_done_callback(self._ender(where))
        self._metrics.waiting(len(self._due))
        return None

    def _ender(self, where: str) -> Callable[[asyncio.Task[None]], None]:
        def end(task: asyncio.Task[None]) -> None:
            if self._running.get(where) is task:
                del self._running[where]
            self._wake.set()

        return end

    async def _take(self, where: str) -> None:
        if self._taker is None:
            return
        if self._before is not None and not self._closed:
            await self._before(where)
        try:
            await self._taker.take(where)
        except TakeFailed as failure:
            self._failed(where, failure)
        except Exception:  # noqa: BLE001  # whatever it is, the others go on
            _log.exception("checkpoint_failed", session_id=session_of(where))
        else:
            self._failures.pop(where, None)
            self._away = 0

    def _failed(self, where: str, failure: TakeFailed) -> None:
        if failure.away:
            count = self._away = self._away + 1
        else:
            count = self._failures[where] = self._failures.get(where, 0) + 1
        pause = min(_FIRST_RETRY * 2 ** min(count - 1, 10), _LAST_RETRY)
        if failure.away:
            self._resume_at = self._clock.monotonic() + pause
        _log.warning(
            "checkpoint_not_taken",
            session_id=session_of(where),
            reason=str(failure),
            again_in=None if failure.lasting else pause,
        )
        if not failure.lasting and not self._closed:
            self._plan(where, pause)

    def _plan(self, where: str, seconds: float) -> None:
        if self._taker is None or where in self._used:
            return
        at = self._clock.monotonic() + seconds
        self._due[where] = min(at, self._due.get(where, at))
        self._wake.set()

    async def _stop(self, where: str) -> None:
        """Ends a checkpoint that is being taken, and waits for that."""
        self._due.pop(where, None)
        task = self._running.get(where)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _forget(self, where: str) -> None:
        for known in (self._due, self._failures):
            known.pop(where, None)
        self._used.discard(where)
