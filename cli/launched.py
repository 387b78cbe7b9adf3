"""A stack of one's own, as a child process: for the demo, tests and benchmarks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cli.stack import ports
from cli.stack.installation import Installation
from cli.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

_STOP_DEADLINE = 60.0  # s; past the supervisor's own for its services


class LaunchFailedError(Exception):
    """The stack did not become ready; the message holds what it printed."""


@dataclass(slots=True)
class LaunchedStack:
    """`drover up` over the directory `data`, on a free port unless one is given.

    A context manager: ready when entered, stopped when left. However this process ends, the stack
    ends after it. `environment` replaces this process's. Its output goes to DATA/up.log.
    """

    data: Path
    port: int = 0
    brains: int = 2
    environment: Mapping[str, str] | None = None
    ready_deadline: float = 60.0
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def installation(self) -> Installation:
        """The files of the stack."""
        return Installation(self.data)

    @property
    def target(self) -> Target:
        """Its URL and key, while it runs."""
        address = self.installation.address_file("gateway").read_text().strip()
        return Target(ports.url_of(address), self.installation.kept_key() or "")

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        return self._running().pid

    def pid_of(self, name: str) -> int:
        """The pid of a service now. Raises `OSError` while it is being started."""
        return int(self.installation.pid_file(name).read_text())

    def start(self) -> Self:
        """Starts the stack and returns once it is ready. Raises `LaunchFailedError`."""
        self.data.mkdir(parents=True, exist_ok=True)
        output = self.data / "up.log"
        arguments = ["--data", str(self.data), "--port", str(self.port), "--attended", "--brains"]
        with output.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-P", "-m", "cli.main", "up", *arguments, str(self.brains)],
                stdin=subprocess.PIPE,  # never written to: it closes when this process ends
                stdout=log,
                stderr=log,
                env=None if self.environment is None else dict(self.environment),
                start_new_session=True,
            )
        try:
            self._await_ready(output)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> int:
        """Asks the stack to end; returns its exit code."""
        process = self._running()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait(_STOP_DEADLINE)
        _hang_up(process)
        return code

    def kill(self) -> None:
        """Kills the supervisor; its services die with it."""
        process = self._running()
        if process.poll() is None:
            process.kill()
        process.wait()
        _hang_up(process)

    def kill_service(self, name: str) -> int:
        """Kills a service with SIGKILL; returns the pid that it had."""
        pid = self.pid_of(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def _await_ready(self, output: Path) -> None:
        deadline = time.monotonic() + self.ready_deadline
        while not _says_ready(output):
            if self._running().poll() is not None or time.monotonic() > deadline:
                raise LaunchFailedError(output.read_text(errors="replace"))
            time.sleep(0.02)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            msg = "the stack was not started"
            raise RuntimeError(msg)
        return self._process

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()


def _hang_up(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _says_ready(output: Path) -> bool:
    return any(
        line.startswith("ready ") for line in output.read_text(errors="replace").splitlines()
    )
