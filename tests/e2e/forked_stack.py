"""`drover up` in a fork, for tests that need a stack and not the program that starts it.

Of a real one's start most is the imports of its supervisor and then of its warm process. Here both
are forks of the process that has imported everything for this test run. What supervises, what is
started and what it is told are the real ones.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, cast

from cli.launched import LaunchedStack
from cli.stack import warm as warm_process
from cli.stack.order import Order
from cli.stack.plan import Plan
from tests.e2e.forked import end_with, warm

_OF_INTERPRETERS: Final = ("PYTHON", "LD_", "MALLOC_")
"""How the names of variables begin that are read when a program starts, and never later."""
_IMPORTS: Final = Plan.make(host="", port=0, brains=1, ports=range(5)).imports
_spawned: Final[Any] = os.posix_spawn


@dataclass(slots=True)
class ForkedStack(LaunchedStack):
    """A launched stack without what starting it takes. It tells no exit code."""

    def start(self) -> Self:
        """As the real one."""
        environment = dict(os.environ if self.environment is None else self.environment)
        if _interpreters(environment) != _interpreters(os.environ):
            return LaunchedStack.start(self)
        self.data.mkdir(parents=True, exist_ok=True)
        output = self.data / "up.log"
        output.write_bytes(b"")
        arguments = ["--data", str(self.data), "--port", str(self.port), "--attended", "--brains"]
        order = Order("up", __name__, str(output), environment, ("cli.main", "cli.up", *_IMPORTS))
        forked = warm().fork(order, "up", *arguments, str(self.brains), attended=True)
        self._process = cast("Any", forked)
        try:
            self._await_ready(output)
        except BaseException:
            self.kill()
            raise
        return self


def _interpreters(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_INTERPRETERS)}


def main() -> None:
    """What the fork runs."""
    os.posix_spawn = cast("Any", _spawn)
    importlib.import_module("cli.main").main()


def _spawn(
    path: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    file_actions: Sequence[tuple[Any, ...]],
    setpgroup: int,
) -> int:
    """Forks instead the warm process, unless another thread runs."""
    if sum(1 for _ in Path("/proc/self/task").iterdir()) > 1:
        pid: int = _spawned(path, argv, env, file_actions=file_actions, setpgroup=setpgroup)
        return pid
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        # What called this, and all that it has open, is the supervisor's.
        end_with(partial(_be_warm, argv, env, file_actions, setpgroup))
    return pid


def _be_warm(
    argv: Sequence[str],
    env: Mapping[str, str],
    file_actions: Sequence[tuple[Any, ...]],
    setpgroup: int,
) -> None:
    """Has this fork as a program finds itself that was just started, and runs the warm process."""
    os.setpgid(0, setpgroup)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(None)
    for what, to, *rest in file_actions:
        if what == os.POSIX_SPAWN_OPEN:
            opened = os.open(*rest)
            os.dup2(opened, to)
            os.close(opened)
        else:
            os.dup2(to, rest[0])
    first = 3
    for kept in sorted(int(argument) for argument in argv if argument.isdecimal()):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(env)
    sys.argv = list(argv[argv.index("-m") + 1 :])
    warm_process.main()
