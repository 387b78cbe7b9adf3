"""Has the memory stores of sessions follow their hands: before, while and after each call."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.bringing.port import Told
from services.hands.domain.address import is_of, session_of
from services.hands.lifecycle import Unobserved
from services.hands.memory import records
from services.hands.memory.mirror import Mirror
from services.hands.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from services.hands.backends.port import Volume
    from services.hands.domain.mounts import Mounts
    from services.hands.hand import Hand
    from services.hands.memory.pushing import Memories
    from services.hands.workspace import Workspaces

_CLOSE_SECONDS: Final = 3.0

_log = structlog.get_logger("hands.memory")


@dataclass(slots=True)
class _Followed:
    """A hand that has stores, and how many calls run in it."""

    hand: Hand
    mirror: Mirror
    calls: int = 0
    next_look: asyncio.TimerHandle | None = None


class MemoryDirectories(Unobserved):
    """Accompanies calls, fills directories ahead of them, and stores what is left at the end.

    `tasks` owns what goes on beside calls.
    """

    def __init__(
        self,
        memories: Memories,
        workspaces: Workspaces,
        tasks: asyncio.TaskGroup,
        *,
        every: float = 1.0,
        traffic: Traffic | None = None,
    ) -> None:
        """`every` is the seconds between looks while a call runs."""
        self._traffic = traffic or Traffic()
        self._memories = memories
        self._workspaces = workspaces
        self._tasks = tasks
        self._every = every
        self._followed: dict[str, _Followed] = {}
        self._left: dict[str, Mirror] = {}
        self._storing: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many hands have ended whose memories are not all stored."""
        return sum(mirror.pending for mirror in [*self._left.values()])

    async def start(self) -> None:
        """Has stored, soon, what sandboxes of a process that died have left."""
        for where, volume, mounts in await asyncio.to_thread(self._unfinished):
            mirror = Mirror(self._memories, volume, session_of(where), mounts)
            self._leave(where, mirror)

    # a piece of what a hand must have

    def settled(self, where: str, hand: Hand, mounts: Mounts) -> bool:
        """Whether its directories were filled once, or it has none."""
        if not mounts.stores:
            return True
        found = self._followed.get(where)
        return found is not None and found.hand is hand and found.mirror.filled

    async def ready(self, where: str, hand: Hand, mounts: Mounts, *, again: bool) -> None:  # noqa: ARG002  # each call tries again anyway
        """Fills the directories, before a call needs them."""
        if (found := await self._of(where, hand, mounts)) is not None:
            await found.mirror.freshen()

    def busy(self, where: str) -> bool:
        """Whether anything is being brought, or stored."""
        found = self._followed.get(where)
        return found is not None and found.mirror.busy

    # an attendant of calls

    def wanted(self, where: str, hand: Hand, mounts: Mounts) -> bool:  # noqa: ARG002  # any hand's
        """Whether there are stores."""
        return bool(mounts.stores)

    @asynccontextmanager
    async def attend(
        self,
        where: str,
        hand: Hand,
        mounts: Mounts,
        call_id: str,  # noqa: ARG002  # any call
    ) -> AsyncIterator[Told]:
        """Has the call find what is stored by now, and stores what it leaves."""
        told = Told()
        found = await self._of(where, hand, mounts)
        if found is None:  # its workspace is being deleted
            yield told
            return
        await found.mirror.freshen()
        self._begin(found)
        try:
            yield told
        except asyncio.CancelledError:
            self._end(found)
            raise
        except BaseException:
            self._end(found)
            await found.mirror.store()
            raise
        self._end(found)
        await found.mirror.store()
        for notice in found.mirror.take():
            (told.errors if notice.is_error else told.notes).append(f"[memory] {notice.text}")

    # the lifecycle of hands

    def ended(self, where: str) -> None:
        """Stores what the sandbox has left, soon."""
        if (found := self._followed.pop(where, None)) is not None:
            self._leave(where, found.mirror)

    async def leaves(self, where: str) -> None:
        """Stores what is left of a hand that its session loses."""
        if (found := self._followed.get(where)) is not None:
            await found.mirror.store()
        elif (mirror := self._left.get(where)) is not None:
            await mirror.store()

    async def purged(self, session_id: str, hand: str | None) -> None:
        """Nobody is interested any more in what is left."""
        for where in [*self._left]:
            if is_of(where, session_id, hand):
                del self._left[where]

    def tend(self) -> None:
        """Tries again what could not be stored when its hand ended, and looks at what goes on
        behind calls. Called from time to time.
        """
        for found in self._followed.values():
            if not found.calls and not found.mirror.busy:
                self._tasks.create_task(found.mirror.glance(), name="memory")
        for where, mirror in list(self._left.items()):
            if self._workspaces.find(where) is None:
                if mirror.pending:
                    self._traffic.memory_lost()
                    _log.warning("memory_lost", session_id=session_of(where))
                del self._left[where]
            elif not mirror.busy:
                self._leave(where, mirror)

    async def close(self) -> None:
        """Waits for what is being stored; not for long."""
        if self._storing:
            await asyncio.wait(self._storing, timeout=_CLOSE_SECONDS)

    async def _of(self, where: str, hand: Hand, mounts: Mounts) -> _Followed | None:
        """What follows a hand, whose stores are the same for its session's life."""
        found = self._followed.get(where)
        if found is not None and found.hand is hand:
            return found
        volume = self._workspaces.find(where)
        if volume is None:
            return None
        mirror = self._left.pop(where, None) if found is None else found.mirror
        if mirror is None:
            mirror = Mirror(self._memories, volume, session_of(where), mounts)
            self._followed[where] = _Followed(hand, mirror)
        else:
            self._followed[where] = _Followed(hand, mirror)
            await mirror.take_over(volume)
        return self._followed[where]

    def _begin(self, found: _Followed) -> None:
        found.calls += 1
        if found.calls == 1:
            self._look_later(found)

    def _end(self, found: _Followed) -> None:
        found.calls -= 1
        if not found.calls and found.next_look is not None:
            found.next_look.cancel()
            found.next_look = None

    def _look_later(self, found: _Followed) -> None:
        loop = asyncio.get_running_loop()
        found.next_look = loop.call_later(self._every, self._look_soon, found)

    def _look_soon(self, found: _Followed) -> None:
        found.next_look = None
        self._tasks.create_task(self._look(found), name="memory")

    async def _look(self, found: _Followed) -> None:
        await found.mirror.tick()
        if found.calls and found.next_look is None:
            self._look_later(found)

    def _leave(self, where: str, mirror: Mirror) -> None:
        self._left[where] = mirror
        task = self._tasks.create_task(self._store_left(where, mirror), name=f"memory {where}")
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _store_left(self, where: str, mirror: Mirror) -> None:
        await mirror.store()
        if not mirror.pending and self._left.get(where) is mirror:
            await mirror.close()  # first: from now on another one may go on with the record
            if self._left.get(where) is mirror:
                del self._left[where]

    def _unfinished(self) -> list[tuple[str, Volume, Mounts]]:
        found = []
        for where in self._workspaces.everywhere():
            volume = self._workspaces.find(where)
            with suppress(OSError):
                if volume is not None and (record := records.read(volume.root)).open:
                    found.append((where, volume, record.mounts))
        return found
