"""How many events a second the session service makes durable, beside the bare driver (R3)."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench import turns
from bench.report import Report
from bench.stack import Stack, running_stack, session_service
from bench.statistics import Distribution
from bench.writers import WRITERS, Measured, Task
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from tests.doubles.postgres import running_cluster

GOALS: Final = {1: "≥ 0.6", 8: "≥ 1.5"}
"""Of the ratio, by events a message."""
_P99_GOAL: Final = "p99 ≤ 30 ms"
_ROUNDS: Final = 3


async def measure(report: Report, *, scale: float) -> None:
    """Both databases, one after the other; whoever writes has a session of its own."""
    seconds = max(0.5, 2 * scale)
    with running_cluster() as cluster:
        service, bare = cluster.new_database(), cluster.new_database()
        for name, url in (("SQLite", ""), ("PostgreSQL", service)):
            async with running_stack(brains=1, database_url=url) as stack:
                raw = bare if url else str(stack.data / "raw.db")
                connection = stack.connect()
                body = await turns.prepare(connection)
                for events, goal in GOALS.items():
                    sessions = [await turns.new_session(connection, body) for _ in range(WRITERS)]
                    measured = await _writers(stack, raw, sessions, events, seconds)
                    _tell(report, f"{name}, {events} a message", measured, events, goal)
                await connection.close()


async def _writers(
    stack: Stack, raw: str, sessions: list[str], events: int, seconds: float
) -> Measured:
    """Runs the writers as a process; raises if what they were told is not what is stored."""
    task = Task(
        data=str(stack.data),
        raw=raw,
        sessions=sessions,
        events_a_message=events,
        rounds=_ROUNDS,
        seconds=seconds,
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.writers",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    answer, _ = await process.communicate(json.dumps(asdict(task)).encode())
    if process.returncode:
        raise RuntimeError(f"the writers failed with {process.returncode}")
    measured = Measured(**json.loads(answer))
    await _check(task, measured)
    return measured


async def _check(task: Task, measured: Measured) -> None:
    """Raises if an acknowledged event is not stored, or is there twice."""
    if sum(measured.heads.values()) != measured.acknowledged:
        raise RuntimeError("the logs hold other events than those that were acknowledged")
    async with session_service(Path(task.data)) as channel:
        sessions: Any = SessionServiceStub(channel)
        for session, head in measured.heads.items():
            last = pb.GetEventsRequest(session_id=session, order=pb.SORT_ORDER_DESC, limit=1)
            [event] = (await sessions.GetEvents(last)).data
            if event.seq != head:
                raise RuntimeError(f"{session}: acknowledged to {head}, stored to {event.seq}")


def _tell(report: Report, name: str, measured: Measured, events: int, goal: str) -> None:
    raw, service = (Distribution(tuple(rates)) for rates in (measured.raw, measured.service))
    bare, reached = raw.percentile(0.5), service.percentile(0.5)
    report.figure(f"{name}: bare driver, one a commit", bare, "events/s")
    report.figure(f"{name}: acknowledged", reached, "events/s")
    report.figure(f"{name}: acknowledged ÷ bare driver", reached / bare, "×", goal)
    latency = _P99_GOAL if events == 1 else ""
    report.latency(f"{name}: until acknowledged", Distribution(tuple(measured.took)), latency)
