"""Runs a whole stack in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cli.stack.installation import write_private
from cli.stack.plan import GATEWAY
from cli.stack.service import Change, Service, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chassis.clock import Clock
    from cli.stack.installation import Installation
    from cli.stack.nursery import Launcher
    from cli.stack.order import Order
    from cli.stack.plan import Plan
    from cli.stack.probe import Probe

# What a process has beyond the time that it gives itself to end; past that it is killed.
_GRACE = 2.0  # s
# A service that never came up dies this often before the stack gives up.
_GIVE_UP_AFTER = 6
_LOG_INTERVAL = 60.0  # s
_MAX_LOG_BYTES = 64 * 1024 * 1024


class Display(Protocol):
    """Where a stack shows what happens to it."""

    def changed(self, change: Change) -> None:
        """A service got to another stage."""
        ...

    def ready(self) -> None:
        """The stack is ready for the first time."""
        ...

    def stopping(self, reason: str) -> None:
        """The stack stops; `reason` names a signal or what went wrong."""
        ...


class FailedError(Exception):
    """A service could not be brought up."""


@dataclass(slots=True)
class _Signals:
    """First signal: stop. Second: now."""

    stop: asyncio.Event
    kill: asyncio.Event
    reason: str = ""

    def install(self) -> None:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # or `nohup` would be in vain
            numbers.append(signal.SIGHUP)
        for number in numbers:
            asyncio.get_running_loop().add_signal_handler(number, self._on, number)

    def _on(self, number: signal.Signals) -> None:
        if self.stop.is_set():
            self.kill.set()
        self.reason = self.reason or number.name
        self.stop.set()


class Supervisor:
    """One stack: its services, the files that tell of them, and the order in which they end."""

    def __init__(
        self,
        plan: Plan,
        installation: Installation,
        *,
        orders: Sequence[Order],
        launcher: Launcher,
        probe: Probe,
        display: Display,
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._installation = installation
        self._display = display
        self._clock = clock
        self._launcher = launcher
        self._probe = probe
        self._services = [
            self._service(order, part.address)
            for order, part in zip(orders, plan.parts, strict=True)
        ]
        self._signals = _Signals(asyncio.Event(), asyncio.Event())
        self._was_ready = False
        self._failed = ""

    async def run(self) -> None:
        """Runs the stack until SIGINT, SIGTERM or SIGHUP.

        Raises `FailedError` if a service does not come up; then too nothing is left running.
        """
        self._signals.install()
        self._installation.clear()
        for part in self._plan.parts:
            write_private(self._installation.address_file(part.name), part.address)
        async with asyncio.TaskGroup() as group:
            watching = [
                group.create_task(self._launcher.run()),
                group.create_task(self._announce()),
                group.create_task(self._bound_logs()),
            ]
            for service in self._services:
                group.create_task(service.run())
            await self._signals.stop.wait()
            self._display.stopping("a service failed" if self._failed else self._signals.reason)
            await self._stop()
            for task in watching:
                task.cancel()
        self._installation.clear()
        if self._failed:
            raise FailedError(self._failed)

    def changed(self, change: Change) -> None:
        """Keeps the pid files, and gives up on a stack that cannot come up."""
        pid_file = self._installation.pid_file(change.name)
        if change.pid:
            self._write(pid_file, change.pid)
        elif change.stage is Stage.STOPPED or change.failures:
            pid_file.unlink(missing_ok=True)  # else the next pid replaces it at once
        self._display.changed(change)
        if (
            change.stage is Stage.DIED
            and (change.failures >= _GIVE_UP_AFTER or change.is_hopeless)
            and not self._was_ready
            and not self._failed
        ):
            told = "cannot use its settings: `drover doctor` examines all of them"
            if not change.is_hopeless:
                told = f"does not come up: {change.detail}"
            self._give_up(f"{change.name} {told}")

    def _write(self, pid_file: Path, pid: int) -> None:
        """Notes a pid. A stack that runs does without when its disk is full."""
        try:
            write_private(pid_file, str(pid))
        except OSError as error:
            pid_file.unlink(missing_ok=True)
            if not self._was_ready:
                self._give_up(f"{pid_file} cannot be written: {error.strerror}: make room")

    def _give_up(self, why: str) -> None:
        self._failed = self._failed or why
        self._signals.stop.set()

    def _service(self, order: Order, address: str) -> Service:
        return Service(
            order,
            launcher=self._launcher,
            listens=lambda: self._probe.listens(address),
            observer=self,
            clock=self._clock,
            grace=order.stop_seconds + _GRACE,
        )

    async def _announce(self) -> None:
        await self._probe.ready(self._plan.gateway.address)
        self._was_ready = True
        self._display.ready()

    async def _stop(self) -> None:
        """Stops the services from the outside in, or all at once at a second signal."""
        waves = [
            [service for service in self._services if service.name == GATEWAY],
            [service for service in self._services if service.name.startswith("brain-")],
            self._services,
        ]
        stopping = asyncio.ensure_future(self._in_turn(waves))
        killing = asyncio.ensure_future(self._signals.kill.wait())
        await asyncio.wait((stopping, killing), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            for service in self._services:
                service.kill()
        killing.cancel()
        await stopping

    @staticmethod
    async def _in_turn(waves: list[list[Service]]) -> None:
        for wave in waves:
            await asyncio.gather(*(service.stop() for service in wave))

    async def _bound_logs(self) -> None:
        """Keeps each log below a bound. Processes append, so that a file may be cut under them."""
        while True:
            await asyncio.sleep(_LOG_INTERVAL)
            await asyncio.to_thread(_cut_logs, self._installation.logs)


def _cut_logs(directory: Path) -> None:
    for log in directory.glob("*.log"):
        with suppress(OSError):
            if log.stat().st_size > _MAX_LOG_BYTES:
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
                os.truncate(log, 0)
