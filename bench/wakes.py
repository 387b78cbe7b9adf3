"""Commit → first SSE byte, beside a raw append with NOTIFY, each with 100 readers connected (R4).

When a transaction was committed the server itself says (`track_commit_timestamp`): it is the moment
from which on it writes and flushes its log, in the transactions of either.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Protocol

import asyncpg

from bench import turns
from bench.client import BETA
from bench.fanout import Children
from bench.readers import mark
from bench.report import Report
from bench.stack import running_stack, session_service
from bench.statistics import Distribution
from chassis.ids import new_id
from drover.event.v1 import event_pb2
from drover.session.v1 import lease_pb2
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from tests.doubles.postgres import running_cluster

READERS: Final = 100
_ROUNDS: Final = 6
"""In A-B-B-A order; the first is not counted."""
_GOAL: Final = "≤ 1.5"
_REST: Final = 0.005
"""Seconds between events, for all to be at rest again."""
_TEXT: Final = "x" * 1_200
_CHANNEL: Final = "bench"
_TABLE: Final = """
    CREATE TABLE events (
        session_id text NOT NULL, seq bigint NOT NULL, body bytea, PRIMARY KEY (session_id, seq)
    )
"""
_APPEND: Final = "INSERT INTO events VALUES ($1, $2, $3)"
_NOTIFY: Final = "SELECT pg_notify($1, $2)"
_COMMITTED: Final = (
    "SELECT EXTRACT(EPOCH FROM pg_xact_commit_timestamp(xmin)) FROM {} WHERE {} = $1"
)


async def measure(report: Report, *, scale: float) -> None:
    """One event at a time, each read by all before the next is written."""
    events = max(10, int(100 * scale))
    async with AsyncExitStack() as exits:
        cluster = exits.enter_context(running_cluster(track_commit_timestamp="on"))
        urls = [cluster.new_database() for _ in range(2)]
        wakes: list[Wakes] = [
            await exits.enter_async_context(_drover(urls[0])),
            await exits.enter_async_context(_raw(urls[1])),
        ]
        samples: dict[str, list[list[float]]] = defaultdict(list)
        for number in range(_ROUNDS):
            for one in wakes if number % 2 == 0 else wakes[::-1]:
                found = await one.wake(events)
                if number:
                    samples[one.name] += found
    first, each = {}, {}
    for name, found in samples.items():
        first[name] = Distribution(tuple(min(of_one) for of_one in found))
        each[name] = Distribution(tuple(one for of_one in found for one in of_one))
        report.latency(f"{name}, the first of {READERS}", first[name])
        report.latency(f"{name}, each of {READERS}", each[name])
    for title, by_name, goal in (("each", each, _GOAL), ("the first", first, "")):
        ours, raw = (by_name[one.name].percentile(0.5) for one in wakes)
        report.figure(f"commit → SSE byte ÷ raw, {title} of {READERS}", ours / raw, "×", goal)


class Wakes(Protocol):
    """Something that wakes readers."""

    name: str

    async def wake(self, events: int) -> list[list[float]]:
        """Writes events; for each, milliseconds from its commit until each reader had it."""
        ...


class Drover:
    """A session that the bench appends to as its brain."""

    name = "commit → SSE byte"

    def __init__(
        self, children: Children, stream: Any, database: asyncpg.Connection[Any], session_id: str
    ) -> None:
        self._children = children
        self._stream = stream
        self._database = database
        self._session_id = session_id
        self._committed = _COMMITTED.format("drover_session.events", "event_id")

    async def open(self) -> None:
        """Takes the lease."""
        opening = lease_pb2.OpenLease(session_id=self._session_id, holder="bench")
        await self._write(open=opening)
        await self._stream.read()

    async def wake(self, events: int) -> list[list[float]]:
        """See `Wakes`."""
        found = []
        for _ in range(events):
            await self._children.tell(self.name, "expect", frames=1, timed=True)
            event = event_pb2.Event(id=new_id("sevt"))
            told = time.time()
            event.agent_message.content.add().text.text = mark() + _TEXT
            await self._write(append=lease_pb2.AppendEvents(events=[event]))
            await self._stream.read()
            got = await self._children.tell(self.name, "received")
            at = await self._database.fetchval(self._committed, event.id)
            before = (float(at) - told) * 1000
            found.append([one - before for one in got["latencies"]])
            await asyncio.sleep(_REST)
        return found

    async def _write(self, **request: Any) -> None:
        await self._stream.write(
            lease_pb2.HoldLeaseRequest(requests=[lease_pb2.LeaseRequest(**request)])
        )


@asynccontextmanager
async def _drover(url: str) -> AsyncIterator[Drover]:
    async with AsyncExitStack() as exits:
        stack = await exits.enter_async_context(running_stack(brains=1, database_url=url))
        connection = stack.connect()
        session_id = await turns.new_session(connection, await turns.prepare(connection))
        await connection.close()
        channel = await exits.enter_async_context(session_service(stack.data))
        sessions = SessionServiceStub(channel)
        children = Children(await exits.enter_async_context(_child("bench.readers")))
        request = (
            f"GET /v1/sessions/{session_id}/events/stream HTTP/1.1\r\nhost: localhost\r\n"
            f"x-api-key: {stack.key}\r\nanthropic-beta: {BETA}\r\n\r\n"
        )
        told = {"port": stack.port, "request": request, "count": READERS}
        await children.tell(Drover.name, "open", **told)
        database = await asyncpg.connect(url)
        exits.push_async_callback(database.close)
        drover = Drover(children, sessions.HoldLease(), database, session_id)
        await drover.open()
        yield drover


class Raw:
    """A table, and a notice in the transaction that appends to it."""

    name = "commit → wake, raw append with NOTIFY"

    def __init__(self, connection: asyncpg.Connection[Any], heard: asyncio.StreamReader) -> None:
        self._connection = connection
        self._heard = heard
        self._seq = 0
        self._committed = _COMMITTED.format("events", "seq")

    async def wake(self, events: int) -> list[list[float]]:
        """See `Wakes`."""
        found = []
        for _ in range(events):
            self._seq += 1
            async with self._connection.transaction():
                row = "sesn_bench", self._seq, _TEXT.encode()
                await self._connection.execute(_APPEND, *row)
                told, said = time.time(), f"{time.monotonic():.6f}"
                await self._connection.execute(_NOTIFY, _CHANNEL, said)
            heard = json.loads(await self._heard.readline())
            at = await self._connection.fetchval(self._committed, self._seq)
            before = (float(at) - told) * 1000
            found.append([one - before for one in heard])
            await asyncio.sleep(_REST)
        return found


@asynccontextmanager
async def _raw(url: str) -> AsyncIterator[Raw]:
    arguments = "bench.listeners", url, _CHANNEL, str(READERS)
    async with _child(*arguments) as listeners:
        if listeners.stdout is None:
            raise RuntimeError("no pipe")
        await listeners.stdout.readline()
        connection = await asyncpg.connect(url)
        await connection.execute(_TABLE)
        yield Raw(connection, listeners.stdout)
        await connection.close()


@asynccontextmanager
async def _child(module: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()
