"""The executor and the pool over a scripted backend, a journal in memory and a hand-set clock."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.hands.custody import Custody
from services.hands.domain.recipe import Recipe, Standard
from services.hands.executor import Executor
from services.hands.lifecycle import Lifecycle
from services.hands.pool import Pool, PoolSize
from services.hands.workspace import Workspaces
from tests.doubles.hands_backend import ScriptedBackend
from tests.doubles.hands_handovers import MemoryHandOvers
from tests.doubles.hands_journal import MemoryJournal

STANDARD = Standard("scripted", images={"docker": "drover/sandbox"}, ceilings={"memory_mib": 8192})


class HandSetClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class World:
    """Everything that a test of the hands touches."""

    directory: Path
    tasks: asyncio.TaskGroup
    size: PoolSize = field(default_factory=lambda: PoolSize(spares=0, max_live=3))
    backend: ScriptedBackend = field(default_factory=ScriptedBackend)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    clock: HandSetClock = field(default_factory=HandSetClock)

    def __post_init__(self) -> None:
        self.workspaces = Workspaces(self.directory, privileged=False)
        self.handovers = MemoryHandOvers(self.journal)
        self._build(self.size)

    async def restart(
        self,
        size: PoolSize | None = None,
        pools: Mapping[Recipe, int] | None = None,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        """A new process over the same journal and workspaces."""
        await self.pool.close()
        self._build(size or self.size, pools, lifecycle)

    def _build(
        self,
        size: PoolSize,
        pools: Mapping[Recipe, int] | None = None,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        numbers = itertools.count(1)
        self.pool = Pool(
            self.backend,
            self.workspaces,
            self.tasks,
            standard=STANDARD,
            pools=pools,
            lifecycle=lifecycle,
            size=size,
            clock=self.clock,
            ids=lambda prefix: f"{prefix}_{next(numbers)}",
        )
        self.custody = Custody(self.handovers, self.pool, self.workspaces, lifecycle)
        self.executor = Executor(self.journal, self.pool, self.tasks, self.custody)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        world = World(tmp_path, tasks)
        await world.workspaces.start()
        yield world
        await world.pool.close()
