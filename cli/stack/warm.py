"""The warm process: imports every service once and forks each from there.

The imports of all services take seconds, a fork takes milliseconds. So the supervisor starts this
program, `python -m cli.stack.warm SOCKET LOCK`, and sends it orders over the socket; a service that
died is back as soon as it can bind its port. Orders are served one by one, each importing what it
needs first: the early services come up while the modules of the later ones are being imported.

Nothing may run in this process but its one thread: a fork copies the thread that forks and the
locks of all others. Should an import have started a thread, the service gets an interpreter of its
own instead, which is slower and always right.

A service is the supervisor's child, not this process's: it is forked twice, and the supervisor
adopts orphans. So the supervisor sees it end, and it outlives this process but not the supervisor.
All hold the lock's descriptor open: the data is in use while any of them lives.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cli.stack.order import MAX_DATAGRAM, Answer, Order
from cli.stack.prctl import die_with_parent, set_name

if TYPE_CHECKING:
    from collections.abc import Callable

_ADOPTION_DEADLINE = 5.0  # s; adoption follows the fork within microseconds
# Sent in an order's name: import the module and start nothing.
IMPORT_ONLY = ""


def serve(channel: socket.socket, fork: Callable[[], int]) -> tuple[Order, bool] | None:
    """Serves orders until whoever gives them hangs up: None. `fork` is as `os.fork`.

    Returns in a forked process too: its order, and whether it may go on as a fork.
    """
    while True:
        datagram, environment, _, _ = socket.recv_fds(channel, MAX_DATAGRAM, 1)
        if not datagram:
            return None
        order = Order.decode(datagram)
        try:
            for module in (order.module, *order.imports):
                importlib.import_module(module)
            alone = _threads() == 1
            pid = fork() if order.name != IMPORT_ONLY else -1
        except Exception as error:  # noqa: BLE001  # whatever a module raises is the answer
            traceback.print_exc()
            os.close(environment[0])
            channel.send(Answer(error=f"{type(error).__name__}: {error}").encode())
            continue
        if pid == 0:
            channel.close()
            return order.opened(environment[0]), alone
        os.close(environment[0])
        channel.send(Answer(pid=pid).encode())


def _fork_for(supervisor: int) -> int:
    """Forks a process that becomes the supervisor's child; returns its pid, or 0 in it."""
    gc.freeze()  # a collection in the child would copy every page it shares
    receiver, sender = os.pipe()
    between = os.fork()
    if between:
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            pid = int(pipe.read() or b"0")
        os.waitpid(between, 0)
        if not pid:
            msg = "the process could not be forked"
            raise OSError(msg)
        return pid
    os.close(receiver)
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid:
        os.write(sender, str(pid).encode())
        os._exit(0)
    os.close(sender)
    _await_adoption(supervisor)
    return 0


def _await_adoption(supervisor: int) -> None:
    deadline = time.monotonic() + _ADOPTION_DEADLINE
    while os.getppid() != supervisor:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.0005)
    die_with_parent(signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)


def become(order: Order, *, alone: bool) -> Callable[[], None]:
    """Turns this forked process into the ordered one; returns what it has to run.

    Unless the process that forked had a single thread, `alone`, it is not safe to go on as a fork:
    the module is executed afresh and this does not return.
    """
    gc.enable()
    os.setsid()  # what a terminal sends goes to the supervisor alone
    log = os.open(order.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(order.environment)
    set_name(f"drover-{order.name}")
    sys.argv = [order.module]
    if not alone:
        os.execve(sys.executable, [sys.executable, "-P", "-m", order.module], os.environ)  # noqa: S606
    run: Callable[[], None] = importlib.import_module(order.module).main
    return run


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def main() -> None:
    """Runs the warm process, and in its forks the services."""
    supervisor = os.getppid()
    die_with_parent(signal.SIGKILL)
    set_name("drover-warm")
    gc.disable()  # imports make objects to stay: collecting among them takes an eighth of the time
    channel, lock = (int(argument) for argument in sys.argv[1:])
    os.set_inheritable(lock, False)  # theirs, but not their children's
    forked = serve(socket.socket(fileno=channel), partial(_fork_for, supervisor))
    if forked is not None:
        order, alone = forked
        become(order, alone=alone)()


if __name__ == "__main__":
    main()
