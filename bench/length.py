"""What a long log costs: a slice of it, and a turn at its end, beside the same in a short one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from bench import baseline, seeding, turns
from bench.client import Connection
from bench.report import Report
from bench.stack import Stack, running_stack, session_service
from bench.statistics import Distribution
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from tests.doubles.postgres import running_cluster

SLICE_GOAL: Final = "≤ 1.2"
TURN_GOAL: Final = "≤ 2"
SHORT, LONG, WORKED = 100, 100_000, 10_000
"""Events of the logs that slices are read of, and of those that turns are added to."""

_PAGE: Final = 20
_SAVED_SECONDS: Final = 1.0
"""By then a checkpoint is saved that was sent behind a turn."""


async def measure(report: Report, *, scale: float) -> None:
    """Both databases, one after the other."""
    with running_cluster() as cluster:
        # One for each stack: the keys of what a database keeps lie with the stack's data.
        for name, database in (("SQLite", str), ("PostgreSQL", cluster.new_database)):
            rounds = max(5, int(20 * scale))
            async with _opened(database()) as long:
                await _slices(report, long, name, rounds=max(20, int(200 * scale)))
                await _warm_turns(report, long, name, rounds=rounds)
            # As every brain is to a session that another one had.
            async with _opened(database(), DROVER_STATE_CACHE_BYTES="0") as long:
                await _cold_turns(report, long, name, rounds=rounds)


@dataclass(frozen=True, slots=True)
class _Long:
    """A stack, and how to reach its session service directly."""

    stack: Stack
    sessions: Any
    body: dict[str, str]

    async def session(self, connection: Connection, events: int, *, messages: bool) -> str:
        """A session with about so many events, messages among them or not."""
        session = await turns.new_session(connection, self.body)
        count = max(1, events // seeding.EVENTS_A_TURN)
        await seeding.grow(self.stack.data, session, count, messages=messages)
        return session


@asynccontextmanager
async def _opened(database_url: str, **settings: str) -> AsyncIterator[_Long]:
    async with running_stack(database_url=database_url, **settings) as stack:
        connection = stack.connect()
        body = await turns.prepare(connection)
        await connection.close()
        async with session_service(stack.data) as channel:
            yield _Long(stack, SessionServiceStub(channel), body)


async def _slices(report: Report, long: _Long, name: str, *, rounds: int) -> None:
    """Every kind of slice, of the short and the long log in turns."""
    connection = long.stack.connect()
    logs = [await long.session(connection, events, messages=False) for events in (SHORT, LONG)]
    await connection.close()
    requests = [await _requests(long.sessions, session) for session in logs]
    samples: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds + 1):
        for kind in requests[0]:
            for which, asked in enumerate(requests):
                start = time.perf_counter()
                await long.sessions.GetEvents(asked[kind])
                took = (time.perf_counter() - start) * 1000
                samples.setdefault((kind, which), []).append(took)
    for kind in requests[0]:
        short, other = (Distribution(tuple(samples[kind, which][1:])) for which in (0, 1))
        report.latency(f"{name}: {kind} of {LONG:,} events", other)
        ratio = other.percentile(0.5) / short.percentile(0.5)
        report.figure(f"{name}: {kind}, of {LONG:,} ÷ of {SHORT}", ratio, "×", SLICE_GOAL)


async def _requests(sessions: Any, session_id: str) -> dict[str, pb.GetEventsRequest]:
    def asked(**fields: Any) -> pb.GetEventsRequest:
        return pb.GetEventsRequest(session_id=session_id, limit=_PAGE, **fields)

    [last] = (await sessions.GetEvents(asked(order=pb.SORT_ORDER_DESC))).data[:1]
    middle = last.seq // 2
    [there] = (await sessions.GetEvents(asked(after_seq=middle))).data[:1]
    second = (await sessions.GetEvents(asked())).next_page
    return {
        "first page": asked(),
        "second page": asked(page=second),
        "last page": asked(order=pb.SORT_ORDER_DESC),
        "after a position": asked(after_seq=middle),
        "before a position": asked(before_seq=middle, order=pb.SORT_ORDER_DESC),
        "around an event": asked(around_event_id=there.id, events_before=9, events_after=10),
        "since a time": asked(created_at_gte=there.processed_at),
        "messages only": asked(types=["agent.message"]),
        "a type that is rare": asked(types=["session.error"]),
    }


async def _warm_turns(report: Report, long: _Long, name: str, *, rounds: int) -> None:
    """Turns of fresh and of long sessions, in turns, with a brain that has kept what it folded."""
    took = _Turns()
    async with _connected(long, took) as (connection, compare):
        grown = await long.session(connection, WORKED, messages=True)
        for _ in range(rounds):
            fresh = await turns.new_session(connection, long.body)
            fork = await _fork(connection, grown)
            for kind, session in (("fresh", fresh), ("long", fork)):
                async with connection.stream(session) as stream:
                    await turns.turn(connection, session, stream, "hello")
                    lasted = (await turns.turn(connection, session, stream, "hello"))[1]
                    took.note(f"{kind}, warm", lasted)
            await compare()
    took.tell(report, name, "warm", TURN_GOAL)


async def _cold_turns(report: Report, long: _Long, name: str, *, rounds: int) -> None:
    """As `_warm_turns`, with brains that keep nothing.

    They begin a long session from the checkpoint that the last of them has left, and a fork, which
    has none, from its first event.
    """
    took = _Turns()
    async with _connected(long, took) as (connection, compare):
        grown = await long.session(connection, WORKED, messages=True)
        fork = await _fork(connection, grown)
        async with connection.stream(fork) as stream:
            await turns.turn(connection, fork, stream, "hello")
        await asyncio.sleep(_SAVED_SECONDS)
        for _ in range(rounds):
            fresh = await turns.new_session(connection, long.body)
            first = await _fork(connection, grown)
            for kind, session in (("fresh, cold", fresh), ("long, first", first)):
                async with connection.stream(session) as stream:
                    took.note(kind, (await turns.turn(connection, session, stream, "hello"))[1])
            async with connection.stream(fork) as stream:
                lasted = (await turns.turn(connection, fork, stream, "hello"))[1]
                took.note("long, cold", lasted)
            await compare()
    took.samples["fresh, first"] = took.samples["fresh, cold"]
    took.tell(report, name, "cold", TURN_GOAL)
    took.tell(report, name, "first", "")


@asynccontextmanager
async def _connected(
    long: _Long, took: _Turns
) -> AsyncIterator[tuple[Connection, Callable[[], Awaitable[None]]]]:
    """A connection, and what measures the bare requests that such turns would take."""
    connection = long.stack.connect()
    messages = [baseline.history(count) for count in (0, WORKED // seeding.EVENTS_A_TURN)]
    async with baseline.client(long.stack.model_url) as sdk:

        async def compare() -> None:
            for kind, history in zip(("fresh", "long"), messages, strict=True):
                took.note(f"{kind}, bare", (await baseline.bare_request(sdk, history))[0])

        yield connection, compare
    await connection.close()


async def _fork(connection: Connection, session: str) -> str:
    """A session with another's log, which no brain has seen."""
    return str((await connection.call("POST", f"/v1/sessions/{session}/fork", {}))["id"])


class _Turns:
    """How long turns took, in milliseconds, by what kind they were."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = {}

    def note(self, kind: str, lasted: float) -> None:
        """Adds a turn, or the bare request that it is compared with."""
        self.samples.setdefault(kind, []).append(lasted)

    def tell(self, report: Report, name: str, temper: str, goal: str) -> None:
        """Compares long sessions with fresh ones."""
        p50 = {
            kind: Distribution(tuple(lasted)).percentile(0.5)
            for kind, lasted in self.samples.items()
        }
        label = f"{name}: {temper} turn behind {WORKED:,} events"
        report.latency(label, Distribution(tuple(self.samples[f"long, {temper}"])))
        net = {kind: p50[f"{kind}, {temper}"] - p50[f"{kind}, bare"] for kind in ("fresh", "long")}
        report.figure(f"{label} ÷ fresh", p50[f"long, {temper}"] / p50[f"fresh, {temper}"], "×")
        # Below 0 where the SDK takes longer over a long history than a brain that has it ready.
        report.figure(f"{label} ÷ fresh, net of bare", net["long"] / net["fresh"], "×", goal)
