"""How many deliveries a second one session's readers get, beside a bare starlette fan-out (R5)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

from bench import turns
from bench.client import BETA, Connection
from bench.readers import mark
from bench.report import Report
from bench.stack import Stack, free_port, running_stack, session_service
from bench.statistics import Distribution
from chassis.ids import new_id
from drover.event.v1 import event_pb2
from drover.session.v1 import lease_pb2
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub

READERS: Final = 200
"""With the one that is stuck."""
_HEALTHY: Final = READERS - 1
_TOGETHER: Final = (1, 8)
"""Events of an append."""
_GOAL: Final = "≥ 0.8"
_ROUNDS: Final = 6
"""In A-B-B-A order; the first is not counted."""
_RATE: Final = 50
"""Events a second where they come steadily."""
_FILL: Final = 100
_LARGE: Final = 50_000
"""Events, and characters of each, that are more than the buffers towards a stuck reader hold."""
_UNANSWERED: Final = 32
_RENEWED_EVERY: Final = 3.0
_SMALL: Final = 200
"""Characters of an event that is measured."""


async def measure(report: Report, *, scale: float) -> None:
    """Bursts first, as quickly as they are taken, then a steady rate."""
    async with AsyncExitStack() as exits:
        fanouts: list[Fanout] = [
            await exits.enter_async_context(_drover()),
            await exits.enter_async_context(_bare()),
        ]
        children = await exits.enter_async_context(_readers())
        for fanout in fanouts:
            await children.tell(fanout.name, "open", count=_HEALTHY, **fanout.request)
            await children.open_stuck(fanout)
        for together in _TOGETHER:
            await _bursts(report, children, fanouts, together, events=max(80, int(400 * scale)))
        await _steady(report, children, fanouts, seconds=max(1.0, 3 * scale))
        report.figure("SSE events lost or repeated, all readers", children.wrong, "")


async def _bursts(
    report: Report, children: Children, fanouts: list[Fanout], together: int, *, events: int
) -> None:
    rates: dict[str, list[float]] = defaultdict(list)
    for number in range(_ROUNDS):
        for fanout in fanouts if number % 2 == 0 else fanouts[::-1]:
            begin = time.monotonic()
            got = await children.deliver(fanout, events, together)
            rates[fanout.name].append(_HEALTHY * events / (got["at"] - begin))
            Bare.size = Bare.size or round(got["bytes"] / got["frames"])
    ours, bare = (median(rates[fanout.name][1:]) for fanout in fanouts)
    title = f"SSE deliveries, {READERS} readers, {together} event{'s'[: together > 1]} an append"
    report.figure(title, ours, "1/s")
    report.figure(f"{title}: bare", bare, "1/s")
    report.figure(f"{title} ÷ bare", ours / bare, "×", _GOAL)


async def _steady(
    report: Report, children: Children, fanouts: list[Fanout], *, seconds: float
) -> None:
    events, (drover, bare) = int(_RATE * seconds), fanouts
    latencies: dict[str, list[float]] = defaultdict(list)
    costs: dict[str, list[float]] = defaultdict(list)

    async def run(fanout: Fanout, kind: str) -> None:
        begin = fanout.cpu_seconds()
        got = await children.deliver(fanout, events, 1, _RATE, timed=True)
        costs[fanout.name].append((fanout.cpu_seconds() - begin) / (_HEALTHY * events))
        latencies[f"{fanout.name}, {kind}"] += got["latencies"]

    for _ in range(2):
        for _ in range(2):
            await run(drover, "one stuck")
            await run(bare, "one stuck")
        await children.tell(drover.name, "close_stuck")
        for _ in range(2):
            await run(drover, "none stuck")
        await children.open_stuck(drover)
    for kind, found in latencies.items():
        report.latency(f"told → read, {_RATE} events/s: {kind}", Distribution(tuple(found)))
    for name, found in costs.items():
        report.figure(f"CPU a delivery, {_RATE} events/s: {name}", median(found) * 1e6, "µs")


class Fanout(Protocol):
    """What has readers."""

    name: str
    request: dict[str, Any]

    async def publish(self, events: int, together: int, rate: float, text: int) -> None:
        """Sends events of `text` characters to all readers, so many at a time.

        As quickly as it can at rate 0.
        """
        ...

    def cpu_seconds(self) -> float:
        """What the process that serves the readers has used of a core so far."""
        ...


class Drover:
    """A session whose events are appended as a brain does."""

    name = "drover"

    def __init__(self, stack: Stack, session_id: str, writer: Writer) -> None:
        pid = int((stack.data / "run" / "gateway.pid").read_text())
        self.cpu_seconds = partial(_cpu_seconds, pid)
        path = f"/v1/sessions/{session_id}/events/stream"
        headers = {"host": "localhost", "x-api-key": stack.key, "anthropic-beta": BETA}
        self.request = _request(stack.port, path, headers)
        self.publish = writer.publish


class Writer:
    """A session's lease."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = asyncio.Lock()

    async def open(self, session_id: str) -> None:
        """Takes the lease."""
        await self._write(open=lease_pb2.OpenLease(session_id=session_id, holder="bench"))
        await self._stream.read()

    async def keep(self) -> None:
        """Renews the lease until it is cancelled."""
        while True:
            await asyncio.sleep(_RENEWED_EVERY)
            await self._write(renew=lease_pb2.RenewLease())

    async def publish(self, events: int, together: int, rate: float, text: int) -> None:
        """Appends events, so many at a time; all are durable when it returns."""
        room = asyncio.Semaphore(_UNANSWERED)
        appends = events // together

        async def acknowledge() -> None:
            left = appends
            while left:
                for response in (await self._stream.read()).responses:
                    if response.HasField("appended"):
                        left -= 1
                        room.release()

        async with asyncio.TaskGroup() as group:
            group.create_task(acknowledge())
            begin = time.monotonic()
            for number in range(appends):
                await room.acquire()
                lot = [_event(text) for _ in range(together)]
                await self._write(append=lease_pb2.AppendEvents(request_id=number, events=lot))
                if rate:
                    due = begin + (number + 1) / rate
                    await asyncio.sleep(max(0, due - time.monotonic()))

    async def _write(self, **request: Any) -> None:
        async with self._lock:
            await self._stream.write(
                lease_pb2.HoldLeaseRequest(requests=[lease_pb2.LeaseRequest(**request)])
            )


def _event(text: int) -> event_pb2.Event:
    event = event_pb2.Event(id=new_id("sevt"))
    event.agent_message.content.add().text.text = mark() + "x" * text
    return event


class Bare:
    """The bare fan-out. `size` is that of a frame of Drover's on the wire."""

    name = "bare"
    size = 0

    def __init__(self, port: int, pid: int) -> None:
        self.cpu_seconds = partial(_cpu_seconds, pid)
        self.request = _request(port, "/stream", {"host": "localhost"})
        self._connection = Connection("127.0.0.1", port, "")

    async def publish(self, events: int, together: int, rate: float, text: int) -> None:
        """Publishes frames, so many at a time."""
        size = self.size if text == _SMALL else text
        told = {"frames": events, "size": size, "together": together, "rate": rate}
        await self._connection.call("POST", "/publish", told)


class Children:
    """The process of the readers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.wrong = 0

    async def open_stuck(self, fanout: Fanout) -> None:
        """Opens a stream that is never read, and has it held up."""
        await self.tell(fanout.name, "open_stuck")
        await self.deliver(fanout, _FILL, 1, text=_LARGE)

    async def deliver(
        self,
        fanout: Fanout,
        events: int,
        together: int,
        rate: float = 0,
        *,
        text: int = _SMALL,
        timed: bool = False,
    ) -> dict[str, Any]:
        """Has a fan-out publish; answers what the readers got once each has it all."""
        await self.tell(fanout.name, "expect", frames=events, timed=timed)
        await fanout.publish(events, together, rate, text)
        got: dict[str, Any] = await self.tell(fanout.name, "received")
        self.wrong += abs(got["frames"] - _HEALTHY * events)
        return got

    async def tell(self, group: str, do: str, **more: Any) -> Any:
        """Has it do something; answers what it says."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("no pipes")
        stdin.write(json.dumps({"group": group, "do": do, **more}).encode() + b"\n")
        answer = await asyncio.wait_for(stdout.readline(), 60)
        return json.loads(answer)


def _request(port: int, path: str, headers: dict[str, str]) -> dict[str, Any]:
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return {"port": port, "request": "\r\n".join(lines) + "\r\n\r\n"}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def _drover() -> AsyncIterator[Drover]:
    async with AsyncExitStack() as exits:
        stack = await exits.enter_async_context(running_stack(brains=1))
        connection = stack.connect()
        session_id = await turns.new_session(connection, await turns.prepare(connection))
        await connection.close()
        channel = await exits.enter_async_context(session_service(stack.data))
        writer = Writer(SessionServiceStub(channel).HoldLease())
        await writer.open(session_id)
        group = await exits.enter_async_context(asyncio.TaskGroup())
        keeping = group.create_task(writer.keep())
        try:
            yield Drover(stack, session_id, writer)
        finally:
            keeping.cancel()


@asynccontextmanager
async def _bare() -> AsyncIterator[Bare]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.bare", str(port))
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                break
        yield Bare(port, process.pid)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def _readers() -> AsyncIterator[Children]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.readers",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    try:
        yield Children(process)
    finally:
        process.kill()
        await process.wait()
