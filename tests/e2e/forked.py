"""Processes forked from one that has imported every service, as `drover up` makes its own.

An interpreter takes most of a second to import a service, and a fork none of it. A test run has one
such process, of which each of its own that wants to fork has a fork to itself: it ends with whom it
is for, and all that it forked with it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Final, NoReturn

from cli.stack.order import MAX_DATAGRAM, Answer, Order
from cli.stack.plan import MODEL_CLIENT
from cli.stack.prctl import die_with_parent
from cli.stack.warm import become, serve

_ROOT: Final = Path(__file__).resolve().parents[2]
_START_SECONDS: Final = 30.0
_PLACE: Final = "DROVER_TEST_FORKS"
_IMPORTS: Final = (
    *("services.registry.main", "services.session.main", "services.vault_proxy.main"),
    *("services.hands.main", "gateway.main", "services.brain.main", *MODEL_CLIENT),
    *("cli.main", "cli.up"),
    # The vault proxy imports this when it serves: more work than all else of a stack's start.
    "services.vault_proxy.mcp.room",
)
"""What nearly every run forks."""
_ARGUMENTS: Final = "FORKED_WITH_ARGUMENTS"
_STDIN: Final = "FORKED_WITH_STDIN"


@dataclass(slots=True)
class Forked:
    """A process that was forked, with what tests use of `subprocess.Popen`."""

    pid: int
    _handle: int
    """Its pidfd, which can be read once the process has ended."""
    stdin: IO[bytes] | None = None
    """What it reads the other end of, if it is attended: it is closed when this process ends."""

    def poll(self) -> int | None:
        """None while it runs. With what it ended, only its parent knows."""
        return None if not self._ended(0) else 0

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end. Raises `TimeoutExpired` after so many seconds."""
        if not self._ended(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return 0

    def send_signal(self, number: int) -> None:
        """Signals it. It may have ended already."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL. It may have ended already."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._handle, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1000))

    def __del__(self) -> None:
        os.close(self._handle)


class Warm:
    """The process that forks."""

    def __init__(self, place: str) -> None:
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_START_SECONDS)
        self._channel.connect(place)
        self._lock = Lock()

    def fork(self, order: Order, *arguments: str, attended: bool = False) -> Forked:
        """Has a process forked. Raises `RuntimeError` if its module cannot be imported.

        Its environment is the order's alone, and its standard input empty unless it is `attended`.
        """
        environment = order.environment | {_ARGUMENTS: json.dumps(arguments)}
        stdin = None
        if attended:
            theirs, ours = os.pipe()
            stdin = os.fdopen(ours, "wb")
            # A pipe is opened anew at its one end to be read, whatever becomes of the other.
            environment[_STDIN] = f"/proc/{os.getpid()}/fd/{ours}"
            os.close(theirs)
        order = replace(order, environment=environment)
        sealed = order.sealed()
        try:
            with self._lock:
                socket.send_fds(self._channel, [order.encode()], [sealed])
                answer = Answer.decode(self._channel.recv(MAX_DATAGRAM))
        finally:
            os.close(sealed)
        if answer.error:
            raise RuntimeError(answer.error)
        # It stays a zombie while its parent lives: its pid is nobody else's.
        return Forked(answer.pid, os.pidfd_open(answer.pid), stdin)

    def close(self) -> None:
        """Hangs up, which ends it and all that it has forked."""
        self._channel.close()


@contextmanager
def warm_for_all() -> Iterator[None]:
    """For the length of the block this process and those below it fork from the same one."""
    if os.environ.get(_PLACE):
        yield
        return
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="drover-forks-"))
        place = str(Path(folder, "socket"))
        alive, ours = socket.socketpair()
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listening.bind(place)
        listening.listen()
        passed = (listening.fileno(), alive.fileno())
        with alive:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.forked", *map(str, passed)],
                stdin=subprocess.DEVNULL,
                cwd=_ROOT,
                pass_fds=passed,
                start_new_session=True,
            )
        stack.callback(process.wait)
        stack.callback(ours.close)
        os.environ[_PLACE] = place
        stack.callback(os.environ.pop, _PLACE)
        yield


@cache
def warm() -> Warm:
    """The one of this process."""
    if not os.environ.get(_PLACE):  # no test run
        lasting = ExitStack()
        lasting.enter_context(warm_for_all())
        atexit.register(lasting.close)
    made = Warm(os.environ[_PLACE])
    atexit.register(made.close)
    return made


def _one_for_each(listening: socket.socket, alive: socket.socket) -> socket.socket | None:
    """Forks for who connects, until the run is over: None. In a fork: its connection."""
    waiting = select.poll()
    for one in (listening, alive):
        waiting.register(one, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if alive.fileno() in ready:
            return None
        channel, _ = listening.accept()
        for module in _IMPORTS:
            with suppress(Exception):  # who orders what cannot be imported is told why
                importlib.import_module(module)
        if _fork() == 0:
            listening.close()
            alive.close()
            return channel
        channel.close()


def _fork() -> int:
    """Forks a process that ends with this one: its pid, or 0 in it."""
    us = os.getpid()
    gc.freeze()  # a collection in the child would copy every page it shares
    pid = os.fork()
    if pid == 0:
        die_with_parent(signal.SIGKILL)
        if os.getppid() != us:
            os._exit(1)
    return pid


def end_with(run: Callable[[], None]) -> NoReturn:
    """Runs it as the last of this process, which does not tidy up what it shares with others."""
    code = 1
    try:
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter that it ends
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serves orders, and in the forks the services."""
    gc.disable()  # imports make objects to stay
    channel = _one_for_each(*(socket.socket(fileno=int(one)) for one in sys.argv[1:]))
    forked = None if channel is None else serve(channel, _fork)
    if forked is not None:
        order, alone = forked
        if place := order.environment.pop(_STDIN, ""):
            stdin = os.open(place, os.O_RDONLY)
            os.dup2(stdin, 0)
            os.close(stdin)
        arguments = json.loads(order.environment.pop(_ARGUMENTS))
        os.environ.clear()
        run = become(order, alone=alone)
        sys.argv += arguments
        end_with(run)


if __name__ == "__main__":
    main()
