"""`drover up`: the whole stack in the foreground."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console

from chassis.clock import SystemClock
from cli.stack import ports
from cli.stack.installation import Installation, InUseError
from cli.stack.nursery import Nursery
from cli.stack.plan import Plan, public
from cli.stack.probe import NetworkProbe
from cli.stack.reaper import Reaper
from cli.stack.service import Change, Stage
from cli.stack.supervisor import FailedError, Supervisor

if TYPE_CHECKING:
    from pathlib import Path

    from chassis.secret import Secret

# A stack that was killed needs a moment to let go of its directory.
_LOCK_PATIENCE = 2.0  # s
_TAIL_LINES = 12


class SteadyConsole(Console):
    """A console whose reader may go away: a stack does not end because nobody watches it."""

    def on_broken_pipe(self) -> None:
        """Prints to nowhere from now on."""
        self.file = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


class CannotStartError(Exception):
    """The stack could not be started; the message says why and what to do."""


@dataclass(slots=True)
class StackDisplay:
    """Shows a stack's life on two consoles: progress and the ready line, and what went wrong."""

    plan: Plan
    installation: Installation
    url: str
    key: str = field(repr=False)
    out: Console
    err: Console
    quiet: bool = False
    started: float = field(default_factory=time.monotonic)
    _is_ready: bool = False

    def changed(self, change: Change) -> None:
        """A line for each service that comes up, and for each that dies."""
        if change.stage is Stage.LISTENING and not self.quiet:
            address = next(part.address for part in self.plan.parts if part.name == change.name)
            self.out.print(
                f"{change.name:<12} {address:<22} pid {change.pid:<8} {self._elapsed()}",
                highlight=False,
            )
        elif change.stage is Stage.DIED:
            self._complain(f"{change.name}: {change.detail}; starting it again", style="yellow")
            if not self._is_ready:
                self._show_log(change.name)

    def ready(self) -> None:
        """The one ready line."""
        self._is_ready = True
        self.out.print(
            f"ready  {self.url}  key {self.key}",
            style="bold green",
            highlight=False,
            soft_wrap=True,
        )

    def stopping(self, reason: str) -> None:
        """Why the stack stops."""
        if not self.quiet:
            self.out.print(f"stopping: {reason}", markup=False, highlight=False, soft_wrap=True)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self.started:.1f} s"

    def _show_log(self, name: str) -> None:
        log = self.installation.log_file(name)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        for line in lines[-_TAIL_LINES:]:
            self._complain(f"  {line}")

    def _complain(self, line: str, style: str | None = None) -> None:
        self.err.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def run_stack(
    data: Path,
    *,
    host: str,
    port: int,
    brains: int,
    quiet: bool,
    out: Console | None = None,
    err: Console | None = None,
) -> None:
    """Runs a stack over the directory `data` until a signal.

    Port 0 takes a free one. Raises `CannotStartError`.
    """
    installation = Installation(data)
    try:
        lock = _acquire(installation)
    except InUseError as error:
        msg = f"{error}: stop it, or choose another directory with --data"
        raise CannotStartError(msg) from error
    except OSError as error:
        msg = f"{data} cannot be used: {error.strerror}: choose another directory with --data"
        raise CannotStartError(msg) from error
    try:
        _run_locked(installation, lock, host, port, brains, quiet=quiet, out=out, err=err)
    finally:
        os.close(lock)


def _run_locked(
    installation: Installation,
    lock: int,
    host: str,
    port: int,
    brains: int,
    *,
    quiet: bool,
    out: Console | None,
    err: Console | None,
) -> None:
    chosen = ports.choose(brains + 5)
    if port == 0:
        port = chosen[-1]
    elif not ports.is_free(host, port):
        msg = f"{host}:{port} is in use: choose another port with --port"
        raise CannotStartError(msg)
    installation.rotate_logs()
    installation.ensure_token()
    key = installation.ensure_key(os.environ.get("DROVER_API_KEY"))
    plan = Plan.make(host=host, port=port, brains=brains, ports=chosen[:-1])
    display = StackDisplay(
        plan,
        installation,
        url=_url(host, port),
        key=key.open(),
        out=out or SteadyConsole(),
        err=err or SteadyConsole(stderr=True),
        quiet=quiet,
    )
    try:
        asyncio.run(_supervise(plan, installation, key, lock, display))
    except FailedError as error:
        msg = f"{error}; its log is in {installation.logs}"
        raise CannotStartError(msg) from error


async def _supervise(
    plan: Plan, installation: Installation, key: Secret, lock: int, display: StackDisplay
) -> None:
    reaper = Reaper()
    reaper.install()
    nursery = Nursery(
        reaper,
        environment=public(os.environ),
        modules=plan.imports,
        log=installation.log_file("warm"),
        keep_open=lock,
    )
    await Supervisor(
        plan,
        installation,
        orders=plan.orders(installation, os.environ, key),
        launcher=nursery,
        probe=NetworkProbe(),
        display=display,
        clock=SystemClock(),
    ).run()


def _acquire(installation: Installation) -> int:
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            return installation.acquire()
        except InUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _url(host: str, port: int) -> str:
    reachable = {"0.0.0.0": ports.LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
