"""A command in a sandbox, beside the same without Drover (R7)."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from bench import turns
from bench.bare_sandboxes import Bubblewrap, Containers, bare_bubblewrap, in_turn, spawn
from bench.hands_process import Hands, memory, running_hands
from bench.report import Report
from bench.stack import running_stack
from bench.statistics import Distribution
from tests.doubles.docker_engine import lacking, reserved

_AT_ONCE: Final = 100
_CROWDS: Final = 7
_SPARE_SECONDS: Final = 0.3
"""How long the hands are given to make a spare before one is claimed."""
_PAUSE_SECONDS: Final = 0.01


async def measure(report: Report, *, scale: float) -> None:
    """Local sandboxes, and containers where an engine can be started."""
    await _local(report, scale)
    await _memory(report)
    await _sessions(report, scale)
    if why := lacking():
        print(f"no container is measured: {why}")
        return
    with reserved() as engine:
        await asyncio.to_thread(engine.start)
        await asyncio.to_thread(engine.build_image)
        await _containers(report, engine.host, scale)


async def _local(report: Report, scale: float) -> None:
    count = max(10, int(100 * scale))
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        async with (
            bare_bubblewrap(Path(folder)) as bare,
            running_hands(DROVER_HANDS_SPARE_SANDBOXES="0") as hands,
        ):
            await in_turn(3, _cold(hands), bare.run)
            cold = await in_turn(count, _cold(hands), bare.run)
            warm = await in_turn(3 * count, await _warm(hands), _spawn)
            many = max(10, int(_AT_ONCE * scale))
            crowd = await in_turn(_CROWDS, _at_once(hands, many), _bare_at_once(bare, many))
    _ratio(report, "Execute, cold", "bare bubblewrap", cold, "≤ 3")
    _ratio(report, "Execute, warm", "posix_spawn", warm, "≤ 3.5")
    about = f"{many} at once, median"
    _ratio(report, f"Execute, cold, {about}", f"bubblewrap, {about}", crowd, "≤ 1.6")
    async with running_hands(DROVER_HANDS_SPARE_SANDBOXES="1") as hands:
        count = max(10, int(30 * scale))
        claims, idle = await in_turn(count, _claim(hands, await _busy(hands)), _claim(hands, _rest))
    report.latency("Provision from the pool", Distribution(tuple(claims)), "p50 ≤ 3 ms (R7)")
    report.latency(f"  after {_SPARE_SECONDS:g} s without a call", Distribution(tuple(idle)))


async def _containers(report: Report, host: str, scale: float) -> None:
    count = max(5, int(30 * scale))
    settings = {"DROVER_SANDBOX": "docker", "DOCKER_HOST": host}
    async with running_hands(**settings, DROVER_HANDS_SPARE_SANDBOXES="0") as hands:
        bare = Containers(host)
        warmed = await _warm(hands)
        sandbox = await asyncio.to_thread(bare.copy)
        cold = await in_turn(count, _cold(hands), _thread(bare.create_and_start))
        warm = await in_turn(count, warmed, _thread(lambda: bare.run_in(sandbox)))
        bare.close()
    _ratio(report, "docker: Execute, cold", "create and start", cold)
    _ratio(report, "docker: Execute, warm", "the engine's exec", warm)


async def _memory(report: Report) -> None:
    many = 20
    async with running_hands(DROVER_HANDS_SPARE_SANDBOXES="0") as hands:
        await hands.execute(hands.new_session())
        others, before = _below(hands.pid), memory({hands.pid})
        for _ in range(many):
            await hands.execute(hands.new_session())
        grown = memory({hands.pid}) - before
        sandboxes = memory(_below(hands.pid) - others)
    report.figure("memory of an idle local sandbox", sandboxes / many, "MiB")
    report.figure("memory of the hands for each of them", grown / many, "MiB")


async def _sessions(report: Report, scale: float) -> None:
    many = max(200, int(2000 * scale))
    async with running_stack() as stack:
        connection = stack.connect()
        body = await turns.prepare(connection)
        pids = {int(path.read_text()) for path in (stack.data / "run").glob("*.pid")}

        async def create(count: int) -> float:
            for _ in range(count):
                await connection.call("POST", "/v1/sessions", body)
            return memory(pids)

        before = await create(200)  # what is grown once has grown
        grown = await create(many) - before
        await connection.close()
    report.figure("memory of all services for an idle session", grown / many * 1024, "KiB")


def _ratio(
    report: Report, name: str, bare: str, samples: list[list[float]], goal: str = ""
) -> None:
    measured, baseline = (Distribution(tuple(one)) for one in samples)
    report.latency(name, measured)
    report.latency(f"  {bare}", baseline)
    ratio = measured.percentile(0.5) / baseline.percentile(0.5)
    report.figure(f"{name} ÷ {bare} (R7)", ratio, "×", goal)


Measure = Callable[[], Awaitable[float]]


def _cold(hands: Hands) -> Measure:
    async def measure() -> float:
        session = hands.new_session()
        begin = time.perf_counter()
        await hands.execute(session)
        taken = (time.perf_counter() - begin) * 1000
        await hands.release(session)
        return taken

    return measure


async def _warm(hands: Hands) -> Measure:
    session = hands.new_session()
    await hands.execute(session)

    async def measure() -> float:
        begin = time.perf_counter()
        await hands.execute(session)
        return (time.perf_counter() - begin) * 1000

    return measure


def _claim(hands: Hands, meanwhile: Callable[[], Awaitable[None]]) -> Measure:
    async def measure() -> float:
        session = hands.new_session()
        await meanwhile()
        begin = time.perf_counter()
        await hands.provision(session)
        taken = (time.perf_counter() - begin) * 1000
        await hands.release(session)
        return taken

    return measure


async def _busy(hands: Hands) -> Callable[[], Awaitable[None]]:
    """Has the hands run another session's commands while they make a spare.

    The memory of what has done nothing for a moment is slow at first on many virtual machines.
    """
    session = hands.new_session()
    await hands.execute(session)

    async def run() -> None:
        until = time.perf_counter() + _SPARE_SECONDS
        while time.perf_counter() < until:
            await hands.execute(session)
            await asyncio.sleep(_PAUSE_SECONDS)

    return run


async def _rest() -> None:
    await asyncio.sleep(_SPARE_SECONDS)


def _at_once(hands: Hands, count: int) -> Measure:
    """The median of so many sessions that begin at once."""

    async def one(session: str, begin: float) -> float:
        await hands.execute(session)
        return (time.perf_counter() - begin) * 1000

    async def measure() -> float:
        sessions = [hands.new_session() for _ in range(count)]
        begin = time.perf_counter()
        taken = await asyncio.gather(*(one(session, begin) for session in sessions))
        for session in sessions:
            await hands.release(session)
        return Distribution(tuple(taken)).percentile(0.5)

    return measure


def _bare_at_once(bare: Bubblewrap, count: int) -> Measure:
    async def measure() -> float:
        taken = await asyncio.gather(*(bare.run() for _ in range(count)))
        return Distribution(tuple(taken)).percentile(0.5)

    return measure


async def _spawn() -> float:
    return spawn()


def _thread(work: Callable[[], float]) -> Measure:
    async def measure() -> float:
        return await asyncio.to_thread(work)

    return measure


def _below(pid: int) -> set[int]:
    found, pending = set(), [pid]
    while pending:
        for task in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            children = [int(word) for word in task.read_text().split()]
            found.update(children)
            pending += children
    return found
