"""32 writers at once: against the bare driver, and against the session service over lease streams.

A process of its own, so that nothing else shares its event loop: `bench.appends` tells it on stdin
what to write to, and reads what it measured from its stdout.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncpg
import uvloop

from bench.stack import session_service
from chassis.ids import new_id
from drover.event.v1 import event_pb2
from drover.session.v1 import lease_pb2

WRITERS: Final = 32
_TEXT: Final = "x" * 1300
"""Makes an event of 1.4 KB, as LIBRARIES.md has them."""

# The columns and keys of the service's own table of events.
_TABLE: Final = """CREATE TABLE IF NOT EXISTS raw_events (
    session_id VARCHAR NOT NULL, seq BIGINT NOT NULL, event_id VARCHAR NOT NULL,
    type VARCHAR NOT NULL, thread_id VARCHAR NOT NULL, processed_at BIGINT NOT NULL,
    body {bytes} NOT NULL, PRIMARY KEY (session_id, seq), UNIQUE (session_id, event_id))"""

Append = Callable[[], Awaitable[int]]
"""Appends once; answers how many events were acknowledged."""


@dataclass(slots=True)
class Task:
    """What to measure: rounds of `seconds`, the bare driver's and the service's in A-B-B-A order.

    The service is that of the stack over `data`. `raw` is a PostgreSQL URL or an SQLite file; each
    of `sessions` has one writer.
    """

    data: str
    raw: str
    sessions: list[str]
    events_a_message: int
    rounds: int
    seconds: float


@dataclass(slots=True)
class Measured:
    """Events a second of each round, milliseconds of each of the service's appends, last heads."""

    raw: list[float] = field(default_factory=list)
    service: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    heads: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0


async def measure(task: Task) -> Measured:
    """Runs the rounds, after one of each that is not counted."""
    measured = Measured()
    async with AsyncExitStack() as stack:
        driver = _postgres if task.raw.startswith("postgresql:") else _sqlite
        bare = await stack.enter_async_context(driver(task.raw))
        streams = await stack.enter_async_context(_streams(task))
        appends = [stream.append for stream in streams]
        await _round(bare, task.seconds, [])
        await _round(appends, task.seconds, [])
        for number in range(task.rounds):
            for service in (False, True, True, False) if number % 2 else (True, False, False, True):
                if service:
                    rate = await _round(appends, task.seconds, measured.took)
                    measured.service.append(rate)
                else:
                    measured.raw.append(await _round(bare, task.seconds, []))
        measured.heads = {stream.session: stream.head for stream in streams}
        measured.acknowledged = sum(stream.acknowledged for stream in streams)
    return measured


async def _round(appends: list[Append], seconds: float, took: list[float]) -> float:
    """Events a second of all writers together."""
    start = time.perf_counter()
    end = start + seconds

    async def write(append: Append) -> int:
        events, now = 0, time.perf_counter()
        while now < end:
            begun = now
            events += await append()
            now = time.perf_counter()
            took.append((now - begun) * 1000)
        return events

    events = sum(await asyncio.gather(*map(write, appends)))
    return events / (time.perf_counter() - start)


@asynccontextmanager
async def _postgres(url: str) -> AsyncIterator[list[Append]]:
    """The driver's pool with a connection a writer, one event a commit."""
    async with asyncpg.create_pool(
        url, min_size=WRITERS, max_size=WRITERS, server_settings={"synchronous_commit": "on"}
    ) as pool:
        await pool.execute(_TABLE.format(bytes="BYTEA"))
        insert = partial(pool.execute, "INSERT INTO raw_events VALUES ($1, $2, $3, $4, $5, $6, $7)")
        yield [_inserting(insert) for _ in range(WRITERS)]


@asynccontextmanager
async def _sqlite(path: str) -> AsyncIterator[list[Append]]:
    """All writers through one connection, one event a commit: SQLite has one writer at a time."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(_TABLE.format(bytes="BLOB"))

    async def insert(*row: Any) -> None:
        connection.execute("INSERT INTO raw_events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        await asyncio.sleep(0)  # the next writer's turn

    try:
        yield [_inserting(insert) for _ in range(WRITERS)]
    finally:
        connection.close()


def _inserting(insert: Callable[..., Awaitable[Any]]) -> Append:
    session, seq = new_id("sesn"), 0

    async def append() -> int:
        nonlocal seq
        seq += 1
        event = _event()
        body = event.SerializeToString()
        await insert(session, seq, event.id, "agent.message", "", time.time_ns(), body)
        return 1

    return append


class _Stream:
    """One writer's lease stream; what it sends and gets are bytes, to keep its own cost low."""

    def __init__(self, call: Any, session: str, events: int) -> None:
        self.session = session
        self.head = self.acknowledged = 0
        self._call = call
        self._events = events

    async def open(self) -> None:
        """Takes the lease."""
        opening = lease_pb2.OpenLease(session_id=self.session, holder="bench")
        await self._call.write(_message(lease_pb2.LeaseRequest(open=opening)))
        [response] = await self._read()
        self.head = response.opened.head_seq

    async def append(self) -> int:
        """Sends one message and waits until it is acknowledged."""
        append = lease_pb2.AppendEvents(events=[_event() for _ in range(self._events)])
        await self._call.write(_message(lease_pb2.LeaseRequest(append=append)))
        [response] = await self._read()
        if response.appended.head_seq != self.head + self._events:
            raise RuntimeError(f"{self.session}: not dense behind {self.head}: {response}")
        self.head = response.appended.head_seq
        self.acknowledged += self._events
        return self._events

    async def _read(self) -> Any:
        message = await self._call.read()
        return lease_pb2.HoldLeaseResponse.FromString(message).responses


@asynccontextmanager
async def _streams(task: Task) -> AsyncIterator[list[_Stream]]:
    async with session_service(Path(task.data)) as channel:
        hold = channel.stream_stream("/drover.session.v1.SessionService/HoldLease")
        streams = [_Stream(hold(), one, task.events_a_message) for one in task.sessions]
        for stream in streams:
            await stream.open()
        yield streams


def _message(request: lease_pb2.LeaseRequest) -> bytes:
    return lease_pb2.HoldLeaseRequest(requests=[request]).SerializeToString()


def _event() -> event_pb2.Event:
    event = event_pb2.Event(id=new_id("sevt"))
    event.agent_message.content.add().text.text = _TEXT
    return event


def main() -> None:
    """Does the task on stdin."""
    task = Task(**json.load(sys.stdin))
    json.dump(asdict(uvloop.run(measure(task))), sys.stdout)


if __name__ == "__main__":
    main()
