from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cli.stack.nursery import LaunchError

if TYPE_CHECKING:
    from datetime import datetime

    from cli.stack.order import Order
    from cli.stack.service import Change


class FakeClock:
    """Time that passes when a test says so, or when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        raise NotImplementedError

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@dataclass
class FakeChild:
    """A process that ends when told, by a test or by a signal that it heeds."""

    pid: int
    heeds_term: bool = True
    signals: list[int] = field(default_factory=list)
    signalled: asyncio.Event = field(default_factory=asyncio.Event)
    exit: asyncio.Future[int] = field(
        default_factory=lambda: asyncio.get_event_loop().create_future()
    )

    async def wait(self) -> int:
        return await asyncio.shield(self.exit)

    def send(self, signal_number: int) -> None:
        self.signals.append(signal_number)
        self.signalled.set()
        if signal_number == signal.SIGKILL:
            self.end(-signal_number)
        elif self.heeds_term:
            self.end(0)

    def end(self, exit_code: int) -> None:
        if not self.exit.done():
            self.exit.set_result(exit_code)


class FakeLauncher:
    """Starts fake children and hands them to the test."""

    def __init__(self) -> None:
        self.children: asyncio.Queue[FakeChild] = asyncio.Queue()
        self.orders: list[Order] = []
        self.refusals: list[str] = []
        self.heeds_term = True

    async def launch(self, order: Order) -> FakeChild:
        self.orders.append(order)
        if self.refusals:
            raise LaunchError(self.refusals.pop(0))
        child = FakeChild(pid=1000 + len(self.orders), heeds_term=self.heeds_term)
        self.children.put_nowait(child)
        return child

    async def run(self) -> None:
        await asyncio.Event().wait()


class Changes:
    """Every change, to be awaited in order."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Change] = asyncio.Queue()

    def changed(self, change: Change) -> None:
        self.queue.put_nowait(change)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture
async def changes() -> Changes:
    return Changes()
