"""Keeps one service running: starts it, sees it die, starts it again."""

from __future__ import annotations

import asyncio
import enum
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from chassis.errors import WRONG_SETTINGS
from cli.stack.nursery import LaunchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chassis.clock import Clock
    from cli.stack.nursery import Child, Launcher
    from cli.stack.order import Order

# Back-off between the starts of a service that dies before it was healthy.
FIRST_DELAY = 0.1  # s
MAX_DELAY = 2.0  # s
# It was healthy if it listened for this long; then its next start is immediate again.
HEALTHY_AFTER = 1.0  # s


class Stage(enum.Enum):
    """Where a service is in its life."""

    STARTING = "starting"
    LISTENING = "listening"
    DIED = "died"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Change:
    """A service got to another stage. `detail` is for people; `failures` counts starts in vain.

    `is_hopeless`: it has died of its settings, and would again.
    """

    name: str
    stage: Stage
    pid: int = 0
    detail: str = ""
    failures: int = 0
    is_hopeless: bool = False


class Observer(Protocol):
    """Whoever wants to know."""

    def changed(self, change: Change) -> None:
        """Called on the event loop at every change."""
        ...


def backoff(failures: int) -> float:
    """Seconds to wait after so many starts in a row that never got healthy."""
    if failures == 0:
        return 0.0
    return min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(failures - 1, 16))


class Service:
    """One service under supervision.

    `listens` returns once the service accepts connections at its address. A service that is asked
    to end has `grace` seconds for it.
    """

    def __init__(
        self,
        order: Order,
        *,
        launcher: Launcher,
        listens: Callable[[], Awaitable[None]],
        observer: Observer,
        clock: Clock,
        grace: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._order = order
        self._launcher = launcher
        self._listens = listens
        self._observer = observer
        self._clock = clock
        self._grace = grace
        self._sleep = sleep
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._child: Child | None = None
        self._failures = 0
        self._is_hopeless = False
        self._listening_since: float | None = None

    @property
    def name(self) -> str:
        """The service's name, that of its pid file."""
        return self._order.name

    async def run(self) -> None:
        """Runs the service until it is stopped, starting it again whenever it dies."""
        try:
            while not self._stopping.is_set():
                ending = await self._live()
                if not self._stopping.is_set():
                    self._tell(Stage.DIED, detail=ending)
                    await self._pause(backoff(self._failures))
            self._tell(Stage.STOPPED)
        finally:
            self._stopped.set()

    async def stop(self) -> None:
        """Has the service end, killing it if it takes too long; returns when it has ended."""
        self._stopping.set()
        await self._stopped.wait()

    def kill(self) -> None:
        """Kills it at once and for good."""
        self._grace = 0.0
        self._stopping.set()
        if self._child is not None:
            self._child.send(signal.SIGKILL)

    async def _live(self) -> str:
        """One life of the service, from its start to its end; returns how it ended."""
        self._tell(Stage.STARTING)
        try:
            child = await self._launcher.launch(self._order)
        except LaunchError as error:
            self._failures += 1
            return str(error)
        self._child = child
        self._listening_since = None
        self._tell(Stage.STARTING, pid=child.pid)
        listening = asyncio.ensure_future(self._announce(child.pid))
        try:
            exit_code = await self._attend(child)
        finally:
            listening.cancel()
            await asyncio.wait((listening,))
            self._child = None
        self._failures = 0 if self._was_healthy() else self._failures + 1
        self._is_hopeless = exit_code == WRONG_SETTINGS
        return _describe(exit_code)

    def _was_healthy(self) -> bool:
        since = self._listening_since
        return since is not None and self._clock.monotonic() - since >= HEALTHY_AFTER

    async def _attend(self, child: Child) -> int:
        """Waits for the child's end, and brings it about once the service is to stop."""
        exited = asyncio.ensure_future(child.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((exited, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                child.send(signal.SIGTERM)
                await asyncio.wait((exited,), timeout=self._grace)
            if not exited.done():
                child.send(signal.SIGKILL)
            return await exited
        finally:
            exited.cancel()
            stopping.cancel()

    async def _announce(self, pid: int) -> None:
        await self._listens()
        self._listening_since = self._clock.monotonic()
        self._tell(Stage.LISTENING, pid=pid)

    async def _pause(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._sleep(seconds))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((sleeping, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            stopping.cancel()

    def _tell(self, stage: Stage, *, pid: int = 0, detail: str = "") -> None:
        hopeless = stage is Stage.DIED and self._is_hopeless
        self._observer.changed(Change(self.name, stage, pid, detail, self._failures, hopeless))


def _describe(exit_code: int) -> str:
    if exit_code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-exit_code).name}"
        return f"killed by signal {-exit_code}"
    return f"exited with code {exit_code}"
