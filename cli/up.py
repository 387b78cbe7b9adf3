"""`drover up`: the whole stack in the foreground."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chassis.clock import SystemClock
from chassis.errors import CannotStartError
from cli.databases import SERVICES, ServiceDatabase, migrate_all
from cli.stack import ports
from cli.stack.complaint import complaint
from cli.stack.installation import Installation, InUseError
from cli.stack.nursery import Nursery
from cli.stack.plan import Plan, public
from cli.stack.probe import NetworkProbe
from cli.stack.reaper import Reaper
from cli.stack.service import Change, Stage
from cli.stack.supervisor import FailedError, Supervisor
from cli.terminal import SteadyTerminal

if TYPE_CHECKING:
    from pathlib import Path

    from chassis.secret import Secret

# A stack that was killed needs a moment to let go of its directory.
_LOCK_PATIENCE = 2.0  # s
_TAIL_LINES = 12
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_INPUT = 4096  # bytes read of what an attended stack is sent, to no effect


@dataclass(slots=True)
class StackDisplay:
    """Shows a stack's life on two consoles: progress and the ready line, and what went wrong."""

    plan: Plan
    installation: Installation
    url: str
    key: str = field(repr=False)
    out: SteadyTerminal
    err: SteadyTerminal
    quiet: bool = False
    started: float = field(default_factory=time.monotonic)
    _is_ready: bool = False
    _shown: dict[str, int] = field(default_factory=dict)  # of each log, characters
    _read: dict[str, int] = field(default_factory=dict)  # of each log, bytes
    _told: dict[str, str] = field(default_factory=dict)  # of each service that is not up, why

    def changed(self, change: Change) -> None:
        """A line for each service that comes up, and for each that dies; once, why."""
        if change.stage is Stage.LISTENING:
            self._told.pop(change.name, None)
        if change.stage is Stage.LISTENING and not self.quiet:
            address = next(part.address for part in self.plan.parts if part.name == change.name)
            self.out.say(f"{change.name:<12} {address:<22} pid {change.pid:<8} {self._elapsed()}")
        elif change.is_hopeless:
            why, _ = complaint(self.installation.log_file(change.name), 0)
            self.err.say(f"{change.name}: {why}")
        elif change.stage is Stage.DIED:
            self.err.say(f"{change.name}: {change.detail}; starting it again", "yellow")
            if self._is_ready:
                self._tell_why(change.name)
            else:
                self._show_log(change.name)

    def ready(self) -> None:
        """The one ready line."""
        self._is_ready = True
        self.out.say(f"ready  {self.url}  key {self.key}", "bold green")

    def stopping(self, reason: str) -> None:
        """Why the stack stops."""
        if not self.quiet:
            self.out.say(f"stopping: {reason}")

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self.started:.1f} s"

    def _tell_why(self, name: str) -> None:
        log = self.installation.log_file(name)
        why, self._read[name] = complaint(log, self._read.get(name, 0))
        if why and why != self._told.get(name):
            self._told[name] = why
            self.err.say(f"  {why} (its log is {log})")

    def _show_log(self, name: str) -> None:
        log = self.installation.log_file(name)
        text = log.read_text(errors="replace") if log.exists() else ""
        before, self._shown[name] = self._shown.get(name, 0), len(text)
        for line in text[before:].splitlines()[-_TAIL_LINES:]:
            self.err.say(f"  {line}")


def run_stack(
    data: Path,
    *,
    host: str,
    port: int,
    brains: int,
    quiet: bool,
    attended: bool = False,
) -> None:
    """Runs a stack over the directory `data` until a signal.

    Port 0 takes a free one. An `attended` stack ends with its standard input too, and so with
    whoever started it. Raises `CannotStartError`.
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
        _run_locked(installation, lock, host, port, brains, quiet=quiet, attended=attended)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        msg = f"{data}: {error.strerror}: make room, or choose another directory with --data"
        raise CannotStartError(msg) from error
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
    attended: bool,
) -> None:
    chosen = ports.choose(brains + 5)
    if port == 0:
        port = chosen[-1]
    elif obstacle := ports.obstacle(host, port):
        raise CannotStartError(obstacle)
    installation.rotate_logs()
    installation.ensure_token()
    installation.certify()
    key = installation.ensure_key(os.environ.get("DROVER_API_KEY"))
    _migrate(installation.root, quiet=quiet)
    plan = Plan.make(host=host, port=port, brains=brains, ports=chosen[:-1])
    display = StackDisplay(
        plan,
        installation,
        url=ports.url_of(plan.gateway.address),
        key=key.open(),
        out=SteadyTerminal(),
        err=SteadyTerminal(stderr=True),
        quiet=quiet,
    )
    try:
        asyncio.run(_supervise(plan, installation, key, lock, display, attended=attended))
    except FailedError as error:
        msg = f"{error}; its log is in {installation.logs}"
        raise CannotStartError(msg) from error


def _migrate(data: Path, *, quiet: bool) -> None:
    """Brings databases up to date that the services will not: on PostgreSQL they only look."""
    out = SteadyTerminal()

    def tell(database: ServiceDatabase, revision: int) -> None:
        if not quiet:
            out.say(f"{database.service:<12} {database.shown}  revision {revision:04} applied")

    found = [ServiceDatabase.of(service, os.environ, data) for service in SERVICES]
    if servers := [database for database in found if not database.is_sqlite]:
        migrate_all(servers, tell)


async def _supervise(
    plan: Plan,
    installation: Installation,
    key: Secret,
    lock: int,
    display: StackDisplay,
    *,
    attended: bool,
) -> None:
    reaper = Reaper()
    reaper.install()
    if attended:
        asyncio.get_running_loop().add_reader(sys.stdin, _end_with_input)
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


def _end_with_input() -> None:
    if not os.read(sys.stdin.fileno(), _INPUT):
        asyncio.get_running_loop().remove_reader(sys.stdin)
        signal.raise_signal(signal.SIGTERM)


def _acquire(installation: Installation) -> int:
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            return installation.acquire()
        except InUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
