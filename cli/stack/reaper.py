"""Waits for every child of the supervisor, and for the orphans that it adopts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import OrderedDict

from cli.stack.prctl import adopt_orphans

# Exits that nobody has asked about yet: adopted strangers, and children not yet announced.
_MAX_UNCLAIMED = 256


class Reaper:
    """Turns SIGCHLD into answers to `exit_of`."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._unclaimed: OrderedDict[int, int] = OrderedDict()

    def install(self) -> None:
        """Adopts orphans from now on and listens for SIGCHLD on the running loop."""
        adopt_orphans()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.collect)

    def collect(self) -> None:
        """Reaps whatever has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.ended(pid, os.waitstatus_to_exitcode(status))

    def ended(self, pid: int, exit_code: int) -> None:
        """Records that `pid` ended."""
        future = self._waiting.pop(pid, None)
        if future is not None and not future.done():
            future.set_result(exit_code)
            return
        self._unclaimed[pid] = exit_code
        self._unclaimed.move_to_end(pid)
        if len(self._unclaimed) > _MAX_UNCLAIMED:
            self._unclaimed.popitem(last=False)

    def forget(self) -> None:
        """Drops the exits that nobody asked about, before a pid can mean another process."""
        self._unclaimed.clear()

    def exit_of(self, pid: int) -> asyncio.Future[int]:
        """The exit code of a child, negative for the signal that ended it. Ask once per child."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if pid in self._unclaimed:
            future.set_result(self._unclaimed.pop(pid))
        else:
            self._waiting[pid] = future
        return future
