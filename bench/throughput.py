"""Turns a second with many sessions at work at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from bench import turns
from bench.client import Connection
from bench.report import Report
from bench.stack import running_stack

SESSIONS: Final = 100


async def measure(report: Report, *, scale: float) -> None:
    """One run, client and model double on the same machine."""
    async with running_stack() as stack:
        connection = stack.connect()
        body = await turns.prepare(connection)
        await connection.close()
        measured = await rate(stack.connect, body, SESSIONS, max(3, int(10 * scale)))
    report.figure(f"turns/s at {SESSIONS} sessions", measured, "1/s", "≥ 70")


async def rate(
    connect: Callable[[], Connection], body: dict[str, str], sessions: int, each: int
) -> float:
    """So many turns in each of so many new sessions, all at once."""
    gate = asyncio.Barrier(sessions + 1)

    async def work() -> None:
        connection = connect()
        session = await turns.new_session(connection, body)
        async with connection.stream(session) as events:
            await gate.wait()
            for _ in range(each):
                await turns.turn(connection, session, events, "hello")
        await connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(work())
        await gate.wait()
        start = time.perf_counter()
    return sessions * each / (time.perf_counter() - start)
