"""Host processes by descriptor, so that a number that was given away again is never signalled."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARENT = 1  # the 4th field of /proc/PID/stat, counted after the command's name
_START_TIME = 19  # the 22nd field


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process for all time: its number, and when it started in ticks since the boot."""

    pid: int
    started: int


def identify(pid: int, parent: int = 0) -> ProcessId | None:
    """The process that has the number now; None if there is none, or not one of that parent."""
    try:
        stat = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    if parent and int(fields[_PARENT]) != parent:
        return None
    return ProcessId(pid, int(fields[_START_TIME]))


def children(pid: int) -> tuple[int, ...]:
    """Numbers of the direct children of a process that has one thread."""
    try:
        text = _read(f"/proc/{pid}/task/{pid}/children")
    except OSError:  # it has ended, or the kernel was built without these files
        return tuple(_children_by_search(pid))
    return tuple(map(int, text.split()))


def kill_with_children(pid: int) -> None:
    """Kills a child of this process that has not been waited for, and the children that it has.

    It is stopped first, for what it forks in that moment would be missed. Blocking, and brief.
    """
    stop(pid)
    for number in (*children(pid), pid):
        with suppress(ProcessLookupError):  # none is another's: who would clear it away is stopped
            os.kill(number, signal.SIGKILL)


def stop(pid: int) -> None:
    """Stops a child of this process that has not been waited for, if it runs. Blocks briefly."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _read(path: str) -> bytes:
    """A file of /proc."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # at a third of the cost
        return file.readall()


def _children_by_search(parent: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                if int(stat.rpartition(")")[2].split()[_PARENT]) == parent:
                    yield int(entry.name)


class Handle:
    """An open descriptor of one process."""

    def __init__(self, fd: int, process: ProcessId) -> None:
        self.descriptor = fd
        self.process = process

    @classmethod
    def open(cls, pid: int, parent: int = 0) -> Handle | None:
        """A handle of the process that has the number now; None if there is none, or it is not one
        of that parent.
        """
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        # Asked once the descriptor is held: from here on the number cannot mean another process.
        process = identify(pid, parent)
        if process is None:
            os.close(fd)
            return None
        return cls(fd, process)

    def kill(self) -> None:
        """Sends SIGKILL, if the process still runs."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)

    @property
    def running(self) -> bool:
        """Whether the process has not ended. A zombie has."""
        poll = select.poll()  # `select` knows none from 1024 on
        poll.register(self.descriptor, select.POLLIN)
        return not poll.poll(0)

    async def ended(self) -> None:
        """Waits for the process's end."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        # A descriptor of its own: a loop watches each for one reader only.
        fd = os.dup(self.descriptor)
        loop.add_reader(fd, done.set)
        try:
            await done.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    def close(self) -> None:
        """Lets go of the process."""
        os.close(self.descriptor)
