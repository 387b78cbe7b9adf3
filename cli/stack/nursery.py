"""The supervisor's side of the warm process: orders in, children out."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cli.stack.order import MAX_DATAGRAM, Answer, Order
from cli.stack.warm import IMPORT_ONLY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cli.stack.reaper import Reaper

_ATTEMPTS = 3


class LaunchError(Exception):
    """A process could not be started; the message says why."""


class Child(Protocol):
    """A running process."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    async def wait(self) -> int:
        """Returns its exit code once it has ended: negative for a signal."""
        ...

    def send(self, signal_number: int) -> None:
        """Signals it. Does nothing once it has ended."""
        ...


class Launcher(Protocol):
    """What can start a process."""

    async def launch(self, order: Order) -> Child:
        """Starts it. Raises `LaunchError`."""
        ...

    async def run(self) -> None:
        """Does what it needs to be quick at the next start, until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class AdoptedChild:
    """A process forked by the warm process and adopted by this one."""

    pid: int
    exit: asyncio.Future[int]

    async def wait(self) -> int:
        """Returns the exit code. May be awaited, and cancelled, any number of times."""
        return await asyncio.shield(self.exit)

    def send(self, signal_number: int) -> None:
        """Signals the process; its pid is its own until its exit is known here."""
        if not self.exit.done():
            os.kill(self.pid, signal_number)


class Nursery:
    """Keeps one warm process, makes it anew when it dies, and has it start children.

    `environment` is the whole environment of the warm process and of every child, before what an
    order adds: no secret belongs in it. The descriptor `keep_open` stays open in all of them.
    """

    def __init__(
        self,
        reaper: Reaper,
        *,
        environment: Mapping[str, str],
        modules: Sequence[str],
        log: Path,
        keep_open: int,
    ) -> None:
        self._reaper = reaper
        self._environment = dict(environment)
        self._modules = tuple(modules)
        self._log = log
        self._keep_open = keep_open
        self._turn = asyncio.Lock()
        self._channel: socket.socket | None = None
        self._warm: asyncio.Future[int] | None = None
        self._warm_pid = 0

    @property
    def warm_pid(self) -> int:
        """The pid of the warm process, dead or alive; 0 before the first."""
        return self._warm_pid

    async def run(self) -> None:
        """Keeps a warm process with everything imported until cancelled."""
        try:
            while True:
                async with self._turn:
                    exited = self._ensure()
                await asyncio.shield(exited)
                # An order makes it anew by itself; what was imported is lost in either case.
                for module in self._modules:
                    await self._import(module)
        finally:
            self.close()

    async def launch(self, order: Order) -> Child:
        """Starts a process and returns it as this process's own child.

        Raises `LaunchError` if the module cannot be imported or no warm process stays alive.
        """
        for _ in range(_ATTEMPTS):
            answer = await self._ask(order)
            if answer is None:
                continue
            if answer.error:
                raise LaunchError(answer.error)
            return AdoptedChild(pid=answer.pid, exit=self._reaper.exit_of(answer.pid))
        msg = f"the warm process died {_ATTEMPTS} times; see {self._log}"
        raise LaunchError(msg)

    def close(self) -> None:
        """Hangs up, which ends the warm process. Children live on."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._warm is not None and not self._warm.done():
            os.kill(self._warm_pid, signal.SIGKILL)

    async def _import(self, module: str) -> None:
        await self._ask(Order(name=IMPORT_ONLY, module=module, log="", environment={}))

    async def _ask(self, order: Order) -> Answer | None:
        """The answer to an order, or None if the warm process died over it."""
        async with self._turn:
            self._ensure()
            channel = self._channel
            if channel is None:
                return None
            self._reaper.forget()  # an exit from here on may be the new child's
            try:
                datagram = await self._exchange(channel, order)
            except asyncio.CancelledError:
                self.close()  # the next answer would be this order's
                raise
            if not datagram:
                self.close()
                return None
            return Answer.decode(datagram)

    @staticmethod
    async def _exchange(channel: socket.socket, order: Order) -> bytes:
        loop = asyncio.get_running_loop()
        environment = order.sealed()
        try:
            # One order at a time: there is room for it.
            socket.send_fds(channel, [order.encode()], [environment])
            return await loop.sock_recv(channel, MAX_DATAGRAM)
        except OSError:
            return b""
        finally:
            os.close(environment)

    def _ensure(self) -> asyncio.Future[int]:
        if self._warm is not None and not self._warm.done() and self._channel is not None:
            return self._warm
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            passed = (theirs.fileno(), self._keep_open)
            for descriptor in passed:
                os.set_inheritable(descriptor, True)
            self._warm_pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", "cli.stack.warm", *map(str, passed)],
                self._environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (
                        os.POSIX_SPAWN_OPEN,
                        1,
                        str(self._log),
                        os.O_WRONLY | os.O_APPEND | os.O_CREAT,
                        0o600,
                    ),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setpgroup=0,
            )
        self._channel = ours
        self._warm = self._reaper.exit_of(self._warm_pid)
        return self._warm
