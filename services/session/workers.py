"""What goes on around the work queue in each process: waking those who poll, and missing those who
have gone. What is queued, and for whom, only the database says.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError
from services.session.domain import queue
from services.session.domain.ports import About
from services.session.domain.session import MICROS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from services.session.commits import Commits
    from services.session.domain.news import News
    from services.session.domain.ports import SessionStore, Transaction
    from services.session.domain.work import WorkItem
    from services.session.domain.work_ports import WorkStats

SWEEP_SECONDS: Final = 1.0
_LIMIT: Final = 100
_REFRESH_SECONDS: Final = 5.0
"""How seldom it is written down that a worker polls. It polls some ten times as often."""
_REMEMBERED: Final = 10_000
_FORGET_MICROS: Final = 10 * queue.POLLING_MICROS
_FORGET_SECONDS: Final = 60.0

_log = structlog.get_logger("session.work")


class Doorbell:
    """Wakes those who wait for work in an environment: a listener to commits."""

    def __init__(self) -> None:
        self._listening: dict[str, set[asyncio.Event]] = {}

    def hear(self, news: News) -> None:
        """Rings where work was queued."""
        if news.work:
            self.ring(news.work)

    def ring(self, environment_id: str) -> None:
        """Wakes everyone: of an item that was queued only one will get anything."""
        for rung in self._listening.get(environment_id, ()):
            rung.set()

    @contextmanager
    def listening(self, environment_id: str) -> Iterator[asyncio.Event]:
        """What is set from now on whenever there may be something new."""
        rung = asyncio.Event()
        there = self._listening.setdefault(environment_id, set())
        there.add(rung)
        try:
            yield rung
        finally:
            there.discard(rung)
            if not there and self._listening.get(environment_id) is there:
                del self._listening[environment_id]


class Pollers:
    """Takes down which workers poll, seldom enough to cost nothing."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._noted: dict[tuple[str, str], float] = {}

    async def note(self, environment_id: str, worker_id: str) -> None:
        """A worker polls. Raises UNAVAILABLE as any write."""
        now, name = time.monotonic(), (environment_id, worker_id)
        if self._noted.get(name, -_REFRESH_SECONDS) > now - _REFRESH_SECONDS:
            return
        if len(self._noted) >= _REMEMBERED:
            self._noted.clear()
        self._noted[name] = now
        await self._store.write(lambda tx: tx.note_poller(environment_id, worker_id))


class Tally(Protocol):
    """Where the counts go."""

    def work(self, waiting: int, oldest_seconds: float) -> None:
        """So many items wait now for a worker that acknowledges them, the oldest for so long."""
        ...

    def lapsed_work(self) -> None:
        """An item was taken from its worker."""
        ...


class LapsedWork:
    """Takes items from workers that are lost, and shows what waits.

    Every replica looks, each now and then; which of them finds an item first does not matter, since
    it is looked at again under the lock of its session.
    """

    def __init__(
        self,
        store: SessionStore,
        commits: Commits,
        tally: Tally,
        *,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self._store = store
        self._commits = commits
        self._tally = tally
        self._sweep_seconds = sweep_seconds

    async def run(self) -> None:
        """Works until cancelled."""
        forget = 0.0
        while True:
            try:
                await self.sweep()
                if time.monotonic() >= forget:
                    forget = time.monotonic() + _FORGET_SECONDS
                    await self._store.write(_forget)
            except DroverError as error:
                _log.warning("sweep_failed", reason=error.reason, message=error.message)
            # Not in step with the other replicas.
            await asyncio.sleep(self._sweep_seconds * random.uniform(0.75, 1.25))  # noqa: S311

    async def sweep(self) -> None:
        """Finds every item whose lease has run out, and sees to each."""

        def read(tx: Transaction) -> tuple[int, WorkStats, Sequence[WorkItem]]:
            return tx.now(), tx.work_stats(), tx.lapsed_work(_LIMIT)

        now, stats, lapsed = await self._store.read(read)
        oldest = now if stats.oldest_queued_at is None else stats.oldest_queued_at
        self._tally.work(stats.depth + stats.pending, (now - oldest) / MICROS)
        for item in lapsed:
            await self._take(item)

    async def _take(self, item: WorkItem) -> None:
        taken = await self._commits.write(
            lambda tx: queue.lapse(tx, item), about=About(item.session)
        )
        if taken is not None:
            self._tally.lapsed_work()
            _log.warning(
                "work_lapsed",
                work_id=item.id,
                session_id=item.session.session_id,
                worker=item.worker_id,
                state=taken.state.name.lower(),
            )


def _forget(tx: Transaction) -> None:
    tx.forget_pollers(tx.now() - _FORGET_MICROS)
