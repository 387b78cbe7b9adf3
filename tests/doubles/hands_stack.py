"""The hands as they run, but for the wire: real sandboxes, a real journal."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from chassis.clock import SystemClock
from chassis.ids import new_id
from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.backends.local import LocalBackend
from services.hands.domain.execution import SANDBOX_LOST, SHELL_LOST
from services.hands.domain.limits import MIB, Limits
from services.hands.executor import Executor
from services.hands.pool import Pool, PoolSize
from services.hands.store.journal import SqlJournal
from services.hands.store.schema import SCHEMA
from services.hands.workspace import Workspaces
from storage import open_database
from tests.doubles.standing import PromptExit

SMALL = Limits(
    memory_bytes=512 * MIB, processes=64, cpus=1.0, file_bytes=64 * MIB, tmp_bytes=128 * MIB
)


class HandsStack:
    """Runs tools for the sessions of one test."""

    def __init__(self, backend: LocalBackend, pool: Pool, executor: Executor) -> None:
        self.backend = backend
        self.pool = pool
        self.executor = executor

    async def run(
        self, tool: str, *, session_id: str = "sesn_1", call_id: str = "", **given: Any
    ) -> ExecuteResponse:
        call_id = call_id or new_id("sevt")
        return await self.executor.execute(session_id, call_id, 1, tool, json.dumps(given))

    async def bash(self, command: str, **given: Any) -> str:
        """What a command prints, and no note below it; fails if the command does."""
        result = await self.run("bash", command=command, **given)
        assert not result.is_error, text(result)
        return printed(result)

    def processes(self, session_id: str = "sesn_1") -> set[int]:
        """Host numbers of every process in a session's sandbox."""
        hand = self.pool._seats[session_id].hand.result()
        outer = hand._sandbox._process.pid  # type: ignore[attr-defined]
        found, pending = set(), [outer]
        while pending:
            pid = pending.pop()
            found.add(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):  # it has just ended
                    pending += map(int, task.read_text().split())
        return found


def text(result: ExecuteResponse) -> str:
    return "".join(block.text.text for block in result.content)


def printed(result: ExecuteResponse) -> str:
    """A result's text without the note that its shell was new."""
    shown = text(result)
    for note in (SHELL_LOST, SANDBOX_LOST):
        shown = shown.removesuffix(note)
    return shown if shown == text(result) else shown.removesuffix("\n")


def running(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@asynccontextmanager
async def hands_stack(
    directory: Path, *, limits: Limits = SMALL, spares: int = 0
) -> AsyncIterator[HandsStack]:
    """A stack over `directory`; everything that it started has ended afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    async with PromptExit() as stack:
        database = await open_database(f"sqlite:///{directory}/hands.db", SCHEMA)
        stack.push_async_callback(database.close)
        backend = LocalBackend(directory / "hands")
        stack.push_async_callback(backend.close)
        await backend.start()
        workspaces = Workspaces(directory / "hands", privileged=os.geteuid() == 0)
        await workspaces.start()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        pool = Pool(
            backend,
            workspaces,
            tasks,
            limits=limits,
            size=PoolSize(spares=spares, max_live=8),
            clock=SystemClock(),
            ids=new_id,
        )
        stack.push_async_callback(pool.close)
        executor = Executor(SqlJournal(database, SystemClock()), pool, tasks)
        yield HandsStack(backend, pool, executor)
