"""A whole run: writers and readers at work while something breaks, then the logs at rest."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import httpx2

from chassis.errors import DroverError
from tests.e2e.replicas import Replicas
from tests.fault.histories.history import Glimpse, Outcome
from tests.fault.histories.holder import Holder
from tests.fault.histories.keys import entry
from tests.fault.histories.poster import Poster
from tests.fault.histories.reader import Reader
from tests.fault.histories.recorder import Recorder
from tests.fault.histories.service import Service, reached

SESSIONS = 8
POSTERS = 3  # and one holder, of each session
READERS = 2  # of each session
WRITERS = SESSIONS * (POSTERS + 1)
_GLIMPSE_EVERY = 0.5
_TO_REST = 40.0  # s for the writers to end and the readers to be shown everything

Breaker = Callable[[], Awaitable[str]]
"""Breaks something, and answers what it was."""


@dataclass(slots=True)
class Run:
    """What came of a run."""

    recorder: Recorder = field(default_factory=Recorder)
    broken: list[str] = field(default_factory=list)
    connections: int = 0
    seconds: float = 0.0

    def report(self, what: str) -> str:
        """One line for people."""
        history = self.recorder.history
        counts = ", ".join(f"{history.count(one)} {one.value}" for one in Outcome)
        breaks = ", ".join(f"{self.broken.count(one)} x {one}" for one in sorted(set(self.broken)))
        events = sum(map(len, history.logs.values()))
        return (
            f"{what}: {WRITERS} writers, {SESSIONS * READERS} readers; "
            f"{len(history.writes)} operations in {self.seconds:.0f} s ({counts}); "
            f"{breaks}; {events} events in {len(history.logs)} logs, "
            f"{len(history.readings)} readings over {self.connections} connections, "
            f"{len(history.glimpses)} glimpses"
        )


async def run(
    fleet: Replicas,
    sessions: list[str],
    breakers: list[Breaker],
    *,
    seconds: float,
    pause: tuple[float, float],
    seed: int,
    result: Run | None = None,
) -> Run:
    """Has writers and readers at work for so long, breaking something after each pause, all of it.

    `result` is where all is noted, for breakers that want to look at it.
    """
    result = result or Run()
    recorder = result.recorder
    chance = random.Random(seed)  # noqa: S311 - a storm must come again as it was
    end = time.monotonic() + seconds

    def over() -> bool:
        """On a busy machine it goes on until everything has been broken once."""
        return time.monotonic() >= end and len(result.broken) >= len(breakers)

    limits = httpx2.Limits(max_connections=None)
    async with (
        reached(fleet.address("session-1"), fleet.peers) as service,
        httpx2.AsyncClient(
            base_url=fleet.url(), headers=fleet.headers, limits=limits, trust_env=False
        ) as client,
        asyncio.TaskGroup() as reading,
    ):
        readers = [
            Reader(f"r{n}-{m}", session, client, recorder, chance.getrandbits(32), slow=n == m == 0)
            for n, session in enumerate(sessions)
            for m in range(READERS)
        ]
        tasks = [reading.create_task(reader.run()) for reader in readers]
        posted = asyncio.Event()
        async with asyncio.timeout(seconds + 2 * _TO_REST), asyncio.TaskGroup() as holding:
            for n, session in enumerate(sessions):
                holder = Holder(f"h{n}", session, service, recorder, chance.getrandbits(32))
                holding.create_task(holder.run(posted.is_set))
            async with asyncio.TaskGroup() as posting:
                for n, session in enumerate(sessions):
                    for m in range(POSTERS):
                        poster = Poster(
                            f"p{n}-{m}", session, service, recorder, chance.getrandbits(32)
                        )
                        posting.create_task(poster.run(over))
                posting.create_task(_glance(service, sessions, recorder, chance, over))
                posting.create_task(_break(breakers, result, pause, chance, over))
            posted.set()
        result.seconds = seconds
        for session in sessions:
            log = [event for event in await service.whole(session) if event.seq]
            recorder.history.logs[session] = tuple(map(entry, log))
        with suppress(TimeoutError):  # the checker says which events were not shown
            async with asyncio.timeout(_TO_REST):
                for reader in readers:
                    await reader.shown(recorder.history.logs[reader.session][-1].id)
        for task in tasks:
            task.cancel()
    recorder.history.readings += [reader.reading() for reader in readers]
    result.connections = sum(reader.connections for reader in readers)
    return result


async def _glance(
    service: Service,
    sessions: list[str],
    recorder: Recorder,
    chance: random.Random,
    over: Callable[[], bool],
) -> None:
    """Looks at the beginning of a log now and then: it must stay as it is."""
    while not over():
        session = chance.choice(sessions)
        try:
            events, _ = await service.page(session)
        except DroverError as error:
            recorder.heard("glance", error)
        else:
            ids = tuple(event.id for event in events if event.seq)
            recorder.history.glimpses.append(Glimpse(session, ids))
        await asyncio.sleep(_GLIMPSE_EVERY)


async def _break(
    breakers: list[Breaker],
    result: Run,
    pause: tuple[float, float],
    chance: random.Random,
    over: Callable[[], bool],
) -> None:
    """Breaks one thing after the other, each in its turn."""
    turn = 0
    while True:
        await asyncio.sleep(chance.uniform(*pause))
        if over():
            return
        result.broken.append(await breakers[turn % len(breakers)]())
        turn += 1
