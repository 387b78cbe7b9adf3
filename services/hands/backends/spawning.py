"""How a local sandbox comes up: bubblewrap makes it, and its agent is forked into it.

Where no agent can be forked into a sandbox, bubblewrap runs one as its command.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from services.hands.backends import bubblewrap, seccomp
from services.hands.backends.port import BackendUnavailable, complaint
from services.hands.backends.process import Handle, children, kill_with_children, stop

if TYPE_CHECKING:
    import socket
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from services.hands.backends.cgroup import Group
    from services.hands.backends.launcher import Launcher, Started
    from services.hands.backends.port import SandboxSpec
    from services.hands.backends.zygote import Zygote

_UP_SECONDS: Final = 15.0
_AT_ONCE: Final = 4
_COMPLAINT: Final = 4096
# A loop holds what runs in it by no more than what it waits for.
_ENDING: Final[set[asyncio.Future[None]]] = set()


@dataclass(frozen=True, slots=True)
class Spawned:
    """A bubblewrap, and the stream to the agent in it.

    Where the agent was forked, `first` is the sandbox's first process, which lives for as long as
    `lifeline` is open; both join the sandbox's control groups before the agent is up. The groups
    are made while bubblewrap starts, and it is moved into them: `grouping`.
    """

    process: subprocess.Popen[bytes]
    stream: socket.socket
    grouping: asyncio.Future[Group] | None = None
    first: Handle | None = None
    lifeline: socket.socket | None = None

    async def group(self) -> Group | None:
        """Its control groups, once bubblewrap is in them, if it has any. Raises `OSError`."""
        return None if self.grouping is None else await asyncio.shield(self.grouping)

    async def grouped(self) -> Group | None:
        """Its control groups, if any could be made. Bubblewrap is moved nowhere after this."""
        if self.grouping is None:
            return None
        await asyncio.wait([self.grouping])
        failed = self.grouping.cancelled() or self.grouping.exception() is not None
        return None if failed else self.grouping.result()

    async def end(self) -> None:
        """Ends what is in there, waits until it has, and removes its groups.

        Who is cancelled meanwhile waits all the same; what has begun goes on even without them.
        """
        ending = asyncio.ensure_future(self._end())
        _ENDING.add(ending)
        ending.add_done_callback(_ENDING.discard)
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait([ending])
            raise

    async def _end(self) -> None:
        first = self.first
        if self.process.returncode is None:
            pid = self.process.pid
            await asyncio.to_thread(stop, pid)
            with suppress(OSError):  # no descriptors: it ends all the same
                first = first or _child(pid)
            await asyncio.to_thread(kill_with_children, pid)
        self.stream.close()
        group = await self.grouped()  # while the number is still bubblewrap's
        await asyncio.to_thread(self.process.wait)
        if first is not None:
            with suppress(OSError):
                await first.ended()
            first.close()
        if self.lifeline is not None:
            self.lifeline.close()
        if group is not None:
            group.remove()

    def release(self) -> None:
        """Lets go of all but the process and the stream. What is in there ends at that."""
        if self.lifeline is not None:
            self.lifeline.close()
        if self.first is not None:
            self.first.close()


class Spawner:
    """Spawns sandboxes by the program `bwrap`, with what is laid out in `directory`.

    `python` runs their agents, which come from `nursery` if there is one. `call_filter` is the
    filter of their system calls.
    """

    def __init__(
        self,
        launcher: Launcher,
        directory: Path,
        program: Path,
        python: str,
        call_filter: bytes | None,
    ) -> None:
        self._launcher = launcher
        self._directory = directory
        self._program = program
        self.python = python
        self._filter = call_filter
        # Its own: a start is not to wait for what else the hands do in threads.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="groups")
        self.nursery: Zygote | None = None

    async def spawn(
        self, spec: SandboxSpec, groups: Callable[[], Group] | None, script: str = ""
    ) -> Spawned:
        """Spawns a sandbox; with a `script` Python runs that in it, in the agent's place.

        `groups` makes its control groups, in a thread. Raises `OSError` and `BackendUnavailable`;
        nothing is left then.
        """
        program = (self.python, "-I", "-S", "-c", script) if script else ()
        nursery = self.nursery
        if nursery is None:
            command = ("--", *(program or bubblewrap.agent(self.python)))
            started = await self._bubblewrap(spec, command, self._filter)
        else:
            started = await self._bubblewrap(spec, bubblewrap.HOLDER, seccomp.of_holder())
        spawned = Spawned(started.process, started.stream)
        try:
            spawned = replace(spawned, grouping=self._grouping(groups, started))
            if nursery is None:
                return spawned
            first = await _first(started)
            spawned = replace(spawned, first=first)
            group = await spawned.group()
            joined = () if group is None else group.directories
            agent = await nursery.fork(spec.volume.owner, first, joined, program)
        except BaseException:
            await spawned.end()
            raise
        return replace(spawned, stream=agent, lifeline=started.stream)

    def agents(self, spawned: Spawned) -> tuple[int, ...]:
        """The numbers of the processes that the agent of a sandbox may be, while there is one."""
        if self.nursery is not None:
            return children(self.nursery.pid)
        first = children(spawned.process.pid)
        return tuple(pid for one in first for pid in children(one))

    def doubt(self) -> None:
        """An agent did not come up: the next ones are not forked from the same process."""
        if self.nursery is not None:
            self.nursery.replace()

    async def close(self) -> None:
        """Ends what sandboxes are started with."""
        await self.forgo()
        await asyncio.to_thread(self._threads.shutdown)

    async def forgo(self) -> None:
        """Ends what agents are forked from: from now on bubblewrap runs them."""
        nursery, self.nursery = self.nursery, None
        if nursery is not None:
            await nursery.close()

    async def _bubblewrap(
        self, spec: SandboxSpec, command: Sequence[str], call_filter: bytes | None
    ) -> Started:
        at, directory = self._launcher.at, self._directory
        told = bubblewrap.arguments(spec, agent=directory / "agent", etc=directory / "etc", at=at)
        files = ["\0".join(told).encode() + b"\0"]
        program: list[str | int] = [str(self._program), "--args", 0]
        if call_filter is not None:
            files.append(call_filter)
            program += ["--seccomp", 1]
        return await self._launcher.start([*program, *command], files, user=spec.volume.owner)

    def _grouping(
        self, groups: Callable[[], Group] | None, started: Started
    ) -> asyncio.Future[Group] | None:
        """Begins to make control groups, and to move bubblewrap into them: what it starts from then
        on is in them.

        Beside the start: the first move after a while takes the kernel long, and nothing else in
        control groups goes on meanwhile.
        """
        if groups is None:
            return None
        loop = asyncio.get_running_loop()
        grouping = loop.run_in_executor(self._threads, _joined, groups, started.process.pid)
        # Nobody asks what became of it when the sandbox ends before it is up.
        grouping.add_done_callback(lambda done: done.cancelled() or done.exception())
        return grouping


def _joined(groups: Callable[[], Group], pid: int) -> Group:
    group = groups()
    try:
        group.add((pid,))
    except BaseException:
        group.remove()
        raise
    return group


async def _first(started: Started) -> Handle:
    """The first process of a sandbox, once it is up. Raises `BackendUnavailable`."""
    said = await _said(started.stream)
    if said != bubblewrap.UP:
        raise BackendUnavailable(complaint(said, bubblewrap.ADVICE))
    first = _child(started.process.pid)
    if first is None:
        raise BackendUnavailable("the sandbox did not start: it has no first process")
    return first


def _child(pid: int) -> Handle | None:
    """What a bubblewrap has started, if it still runs. Raises `OSError`."""
    found = (Handle.open(child, parent=pid) for child in children(pid))
    return next((handle for handle in found if handle is not None), None)


async def _said(stream: socket.socket) -> bytes:
    """What is said first, or all that is where something complains."""
    loop = asyncio.get_running_loop()
    said = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(_UP_SECONDS):
            while len(said) < _COMPLAINT and said != bubblewrap.UP:
                piece = await loop.sock_recv(stream, _COMPLAINT)
                if not piece:
                    break
                said += piece
    return said
