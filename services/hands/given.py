"""What sessions are given and what they leave, where there is a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from services.hands.bringing.bringer import Bringer
from services.hands.files.source import Source
from services.hands.files.uploads import Uploads
from services.hands.lifecycle import Several
from services.hands.memory.attendant import MemoryDirectories
from services.hands.outputs.news import News
from services.hands.outputs.publication import Publication
from services.hands.outputs.publisher import Publisher
from services.hands.skills.found import FoundSkills
from services.hands.skills.mounted import AgentSkills
from services.hands.traffic import Traffic

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from chassis.clock import Clock
    from services.hands.files.uploads import Files
    from services.hands.lifecycle import Lifecycle
    from services.hands.outputs import publication
    from services.hands.outputs.publication import Owners
    from services.hands.outputs.publisher import Pace
    from services.hands.outputs.scan import Bounds
    from services.hands.pool import Pool
    from services.hands.skills.mounted import Skills
    from services.hands.workspace import Workspaces

    class Registry(Files, Skills, publication.Registry, Protocol):
        """Where files and skills come from, and outputs go to."""


class Given:
    """Files, skills, memory stores and outputs: built before the pool, which is equipped then."""

    def __init__(
        self,
        registry: Registry,
        memory: MemoryDirectories,
        owners: Owners,
        workspaces: Workspaces,
        tasks: asyncio.TaskGroup,
        *,
        bounds: Bounds,
        directory: Path,
        free_bytes: int,
        clock: Clock,
        pace: Pace | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        """`bounds` are of outputs, which are published at that `pace`. Bytes of skills are kept in
        `directory`, and `free_bytes` are left on the disk.
        """
        self.memory = memory
        self._traffic = traffic = traffic or Traffic()
        source = Source(clock, free_bytes=free_bytes)
        self._kinds = Uploads(registry, source), AgentSkills(registry, source, directory)
        publication = Publication(registry, owners, bounds, traffic=traffic)
        self.publisher = Publisher(publication, workspaces, tasks, pace=pace)
        traffic.waiting("outputs", lambda: self.publisher.waiting)
        traffic.waiting("memory", lambda: memory.waiting)
        self._workspaces = workspaces
        self._tasks = tasks
        self._clock = clock
        self._bringers: list[Callable[[], Awaitable[None]]] = []

    def told(self, lifecycle: Lifecycle) -> Lifecycle:
        """Whom the pool tells what happens to hands: these, and who keeps workspaces."""
        return Several([self.publisher, lifecycle, self.memory])

    async def equip(self, pool: Pool) -> None:
        """Has a pool's hands be given what sessions mount, and begins to publish."""
        given = pool, self._workspaces, self._tasks, self._clock
        uploads = Bringer(self._kinds[0], *given, traffic=self._traffic)
        skills = Bringer(self._kinds[1], *given, traffic=self._traffic)
        self._bringers = [uploads.close, skills.close]
        pool.pieces += [uploads, skills, self.memory]
        pool.attendants += [
            self.memory,
            FoundSkills(pool, self._workspaces),
            News(self.publisher),
        ]
        await self.publisher.start()
        await self.memory.start()

    def tend(self) -> None:
        """Forgets what nobody needs any more."""
        self.memory.tend()

    async def close(self) -> None:
        """Ends what goes on, as far as there is time for it. Every hand has ended before."""
        for close in self._bringers:
            await close()
        await self.publisher.close()
        await self.memory.close()
