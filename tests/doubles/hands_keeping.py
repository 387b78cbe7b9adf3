"""What keeps workspaces in a store, without sandboxes: tests write to the volumes themselves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from chassis.clock import SystemClock
from chassis.ids import new_id
from services.hands.checkpoints.archiver import Archiver
from services.hands.checkpoints.keeper import Keeper, Pace
from services.hands.checkpoints.metrics import CheckpointMetrics
from services.hands.checkpoints.origins import Origins
from services.hands.checkpoints.pruning import Pruner
from services.hands.checkpoints.restoring import Restorer
from services.hands.checkpoints.taking import Taker
from services.hands.store.checkpoints import SqlCheckpoints
from services.hands.store.schema import SCHEMA
from services.hands.workspace import Workspaces
from storage import Database
from storage.objects import Objects
from tests.doubles.databases import migrated
from tests.doubles.standing import PromptExit

QUICK = Pace(idle_seconds=0.02, at_once=2, stop_seconds=60.0)


async def until(holds: Callable[[], object]) -> None:
    """Once it holds. Mostly another process is waited for, which needs the processor itself."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class LeapingClock:
    """The machine's, which is ahead by as much as it is told."""

    now = staticmethod(SystemClock.now)

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return SystemClock.monotonic() + self.ahead


class Keeping:
    """One hands process's keeping of workspaces, on a machine whose disk is `directory`."""

    def __init__(
        self,
        directory: Path,
        database: Database,
        objects: Objects | None,
        tasks: asyncio.TaskGroup,
        *,
        pace: Pace,
        entries: int,
    ) -> None:
        clock = SystemClock()
        self.workspaces = Workspaces(directory, privileged=os.geteuid() == 0)
        self.registry = CollectorRegistry()
        self.rows = SqlCheckpoints(database, clock)
        self.origins = Origins(directory)
        metrics = CheckpointMetrics(self.registry)
        archiver = Archiver(entries=entries, data=1 << 30)
        self.pruners_clock = LeapingClock()
        self.pruner = taker = None
        if objects is not None:
            self.pruner = Pruner(self.rows, objects, metrics, self.pruners_clock)
            taker = Taker(
                self.rows,
                objects,
                self.workspaces,
                self.origins,
                archiver,
                self.pruner,
                metrics,
                new_id,
            )
        self.keeper = Keeper(
            self.rows,
            self.workspaces,
            self.origins,
            Restorer(objects, self.workspaces, self.origins, archiver, metrics, new_id),
            taker=taker,
            pruner=self.pruner,
            tasks=tasks,
            clock=clock,
            metrics=metrics,
            pace=pace,
        )

    async def volume(self, where: str = "sesn_1") -> Path:
        """A workspace, as a hand that starts finds it."""
        await self.keeper.before_start(where)
        return (await self.workspaces.make(where)).root

    async def work(self, where: str = "sesn_1", text: str = "done") -> Path:
        """A call that writes a file."""
        self.keeper.used(where)
        root = await self.volume(where)
        (root / "workspace" / "file").write_text(text)
        self.keeper.rested(where)
        return root

    def count(self, work: str, outcome: str) -> int:
        """How many checkpoints ended like this."""
        labels = {"work": work, "outcome": outcome}
        return int(self.registry.get_sample_value("drover_hands_checkpoints_total", labels) or 0)


@asynccontextmanager
async def keeping(
    directory: Path,
    database: Path,
    objects: Objects | None,
    *,
    pace: Pace = QUICK,
    entries: int = 10_000,
) -> AsyncIterator[Keeping]:
    """Runs until the block ends, as a process that is then killed."""
    directory.mkdir(exist_ok=True)
    async with PromptExit() as stack:
        opened = await stack.enter_async_context(migrated(f"sqlite:///{database}", SCHEMA))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        world = Keeping(directory, opened, objects, tasks, pace=pace, entries=entries)
        await world.workspaces.start()
        await world.keeper.start()
        for work in (world.keeper.run(), *([world.pruner.run()] if world.pruner else [])):
            stack.callback(tasks.create_task(work).cancel)
        yield world
        for task in [*world.keeper._running.values()]:
            task.cancel()
