"""A running sandbox of the embedded backend: its processes, limits and end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from services.hands.backends import bubblewrap
from services.hands.backends.process import Handle, ProcessId, children

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from services.hands.backends.cgroup import Group
    from services.hands.backends.marks import Marks
    from services.hands.backends.port import SandboxSpec
    from services.hands.backends.spawning import Spawned

_STREAM_BUFFER: Final = 256 * 1024


class LocalSandbox:
    """A bubblewrap that was spawned: its processes, and the stream to the agent.

    `doubt` is called where it ends without ever having been confined.
    """

    def __init__(
        self,
        spawned: Spawned,
        stream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        hand_id: str,
        resource_limits: Mapping[str, int],
        marks: Marks,
        has_way_out: bool,
        doubt: Callable[[], None],
    ) -> None:
        self.reader, self.writer = stream
        self.resource_limits = resource_limits
        self.advice = bubblewrap.ADVICE
        self.has_way_out = has_way_out
        self._spawned = spawned
        self._process = spawned.process
        self._hand_id = hand_id
        self._marks = marks
        self._doubt = doubt
        self._confined = False
        found = (Handle.open(self._process.pid), spawned.first)
        self._handles = [handle for handle in found if handle is not None]
        self._cleaned: str | None = None
        self._cleaning = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        spawned: Spawned,
        spec: SandboxSpec,
        marks: Marks,
        doubt: Callable[[], None] = lambda: None,
    ) -> LocalSandbox:
        """Takes charge of what was spawned. Raises `OSError`; it has ended then."""
        limits = spec.limits.resource_limits(grouped=spawned.grouping is not None)
        close, sandbox = spawned.stream.close, None
        try:
            stream = await asyncio.open_unix_connection(sock=spawned.stream, limit=_STREAM_BUFFER)
            close = stream[1].transport.abort
            sandbox = cls(
                spawned,
                stream,
                hand_id=spec.hand_id,
                resource_limits=limits,
                marks=marks,
                has_way_out=spec.way_out is not None,
                doubt=doubt,
            )
            sandbox._mark()
        except BaseException:  # no descriptors, a full disk: nobody would ever end it
            close()
            if sandbox is not None:
                sandbox._let_go()
            await spawned.end()
            marks.remove(spec.hand_id)
            raise
        return sandbox

    async def confine(self) -> None:
        """Puts what bubblewrap runs under the limits; an agent that was forked was there before."""
        self._confined = True
        if self._spawned.first is not None:
            return
        inner = self._find_inner()
        agents = tuple(pid for first in inner for pid in children(first))
        self._mark()
        if (group := await self._spawned.group()) is not None:
            await asyncio.to_thread(group.add, (*inner, *agents))

    async def kill(self) -> None:
        """Ends every process: PID 1 takes its whole namespace along."""
        if self._cleaned is not None:
            return
        if not self._confined:
            self._doubt()
        if len(self._handles) == 1:
            self._find_inner()
        for handle in reversed(self._handles):
            handle.kill()
        await self.ended()

    async def ended(self) -> str:
        """Waits until no process is left; why it ended, or empty."""
        async with self._cleaning:
            if self._cleaned is None:
                for handle in self._handles:
                    await handle.ended()
                self._cleaned = self._clean(await self._spawned.grouped())
                with suppress(OSError):  # it was cut off
                    await self.writer.wait_closed()
        return self._cleaned

    def _find_inner(self) -> tuple[int, ...]:
        """Takes hold of PID 1 of the sandbox."""
        inner = children(self._process.pid)
        self._handles += [handle for pid in inner if (handle := Handle.open(pid)) is not None]
        return inner

    def _mark(self) -> None:
        processes: list[ProcessId] = [handle.process for handle in self._handles]
        self._marks.put(self._hand_id, processes)

    def _clean(self, group: Group | None) -> str:
        self._process.wait()  # has ended: this only takes its status
        self.writer.close()
        self._spawned.release()
        why = ""
        if group is not None:
            why = "it used more memory than it may" if group.out_of_memory() else ""
            group.remove()
        self._let_go()
        self._marks.remove(self._hand_id)
        return why

    def _let_go(self) -> None:
        """Closes what it has opened itself."""
        for handle in self._handles:
            if handle is not self._spawned.first:
                handle.close()
