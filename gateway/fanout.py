"""Readers of the same session share one subscription: how frames get from it to all of them.

A hub is a subscription with its readers. Of a session's hubs one, the first as a rule, is shared.
Whoever comes later begins with a hub, and so a subscription, of its own: it says where the reader
stands in the log, and what is wrong with the request. As soon as the shared hub has, in its ring,
all that the reader is still owed, the reader moves there and its own hub ends. A reader that falls
out of the shared hub's ring comes back the same way.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from gateway.ring import Ring
from gateway.sse import KEEP_ALIVE
from gateway.wire import chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from chassis.clock import Clock
    from gateway.reader import Reader
    from gateway.sse import Frame
    from gateway.subscription import Subscription

RING_BYTES = 1024 * 1024
"""What of a session is kept at hand, at most."""

_RING_SECONDS = 20.0
_PIECE_BYTES = 128 * 1024
"""What a reader that was late is written at a time."""


class Hub:
    """A subscription and its readers.

    A reader is written what arrives while it takes it. One that does not keep up is left alone
    until it does, and is then written what the ring has for it; if that is not all, it is told that
    it has fallen behind. Where nobody keeps up, the subscription is not read on.
    """

    def __init__(
        self,
        key: Hashable,
        subscription: Subscription,
        ring: Ring,
        keep_alive: float,
        clock: Clock,
    ) -> None:
        self.key = key
        self.is_over = False
        self.task: asyncio.Task[None] | None = None
        self._subscription = subscription
        self._keep_alive = keep_alive
        self._clock = clock
        self._ring = ring
        self._ready: dict[Reader, None] = {}
        self._paused: set[Reader] = set()
        self._wanted = asyncio.Event()
        self._error: Exception | None = None
        self._last = clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(keep_alive, self._beat)

    @property
    def is_held_up(self) -> bool:
        """Whether none of its readers takes anything at the moment."""
        return not self._ready

    async def run(self, after_each: Callable[[Hub], None]) -> None:
        """Hands on what comes until nothing more will, or nobody is left."""
        try:
            async with aclosing(self._subscription.frames()) as batches:
                async for frames in batches:
                    self._publish(frames)
                    after_each(self)
                    while not self._ready:
                        self._wanted.clear()
                        await self._wanted.wait()
        except Exception as error:  # noqa: BLE001  # each reader's to tell
            self._error = error
        self.is_over = True
        for reader in list(self._ready):
            reader.end(self._error)

    def close(self) -> None:
        """Lets go of the subscription. Readers who are late can still be written what is here."""
        self.is_over = True
        self._timer.cancel()
        self._subscription.close()

    def admit(self, reader: Reader, owed: Iterable[Frame] = ()) -> None:
        """Takes in a reader, who is written what it is owed and then what comes."""
        reader.hub = self
        self._ready[reader] = None
        self._wanted.set()
        reader.write(chunk(_data(owed)))
        if reader.is_paused:
            self.pause(reader)

    def take_over(self, reader: Reader, subscription: Subscription) -> bool:
        """Takes in a reader of another subscription, if it can go on here."""
        owed = self.owed(subscription, reader.since)
        if owed is not None:
            self.admit(reader, owed)
        return owed is not None

    def owed(self, subscription: Subscription, since: float) -> list[Frame] | None:
        """What a reader of another subscription, who has come `since`, is owed before it goes on.

        With that no stamped event is missed or repeated, no echo is repeated that was shown, and
        previews begin with the beginning of an event. None where it cannot be told.
        """
        mine, theirs = self._subscription.view, subscription.view
        if self.is_over or not self._subscription.standing or theirs.position is None:
            return None
        if mine.previewed or theirs.previewed or self._may_lack_echoes(subscription):
            return None
        owed = self._ring.behind(theirs.position, mine.position, since, theirs.echoed)
        to_come = theirs.echoed.keys() - mine.echoed.keys()
        if owed and to_come:
            to_come -= {frame.id for frame in owed if frame.seq}
        return None if to_come else owed  # what was echoed there may yet be echoed here

    def _may_lack_echoes(self, theirs: Subscription) -> bool:
        """Whether another subscription may have heard of an event that this one has not.

        Not if it was asked for when this one stood, nor if it has given one that came here live:
        the feed tells all of them the same in the same order.
        """
        mine, position = self._subscription, theirs.view.position or ""
        return theirs.asked < mine.stood and self._ring.arrived(position) <= mine.caught_up

    def move_to(self, hub: Hub) -> None:
        """Has the readers go on at another hub of the same session, those that can."""
        for reader in tuple(self._ready):
            if hub.take_over(reader, self._subscription):
                self._drop(reader)

    def leave(self, reader: Reader) -> None:
        """Forgets a reader. The hub ends with the last one."""
        reader.hub = None
        self._drop(reader)

    def pause(self, reader: Reader) -> None:
        """Writes a reader nothing more until it has taken what it was written."""
        if reader in self._ready:
            del self._ready[reader]
            self._paused.add(reader)
            reader.cursor, reader.view = self._ring.end, self._subscription.view.copy()

    def resume(self, reader: Reader) -> None:
        """Writes a reader what it has missed, and takes it in again."""
        if reader not in self._paused:
            return
        while reader.cursor < self._ring.end and not reader.is_paused:
            missed = self._ring.read(reader.cursor, _PIECE_BYTES)
            if missed is None:
                self.leave(reader)
                reader.fall_behind()
                return
            frames, reader.cursor = missed
            for frame in frames:
                reader.view.note(frame)
            reader.write(chunk(_data(frames)))
        if not reader.is_paused:
            self._paused.discard(reader)
            self._ready[reader] = None
            self._wanted.set()
            if self.is_over:
                reader.end(self._error)

    def _publish(self, frames: Sequence[Frame]) -> None:
        now = self._last = self._clock.monotonic()
        self._ring.add(frames, now)
        self._write(_data(frames))

    def _write(self, data: bytes) -> None:
        whole = chunk(data)
        for reader in tuple(self._ready):  # a write may pause its reader
            reader.write(whole)

    def _beat(self) -> None:
        """Fills silence with keep-alives."""
        now = self._clock.monotonic()
        self._ring.trim(now)
        due = self._last + self._keep_alive - now
        if due <= 0:
            self._write(KEEP_ALIVE)
            self._last, due = now, self._keep_alive
        self._timer = asyncio.get_running_loop().call_later(due, self._beat)

    def _drop(self, reader: Reader) -> None:
        self._ready.pop(reader, None)
        self._paused.discard(reader)
        if not self._ready and not self._paused and self.task is not None:
            self.is_over = True  # from now on, not only once the task has noticed
            self.task.cancel()


def _data(frames: Iterable[Frame]) -> bytes:
    return b"".join([frame.data for frame in frames])


class Fanout:
    """Every hub of this process. Their tasks belong to `group`.

    A stream that was silent for `keep_alive` seconds is sent a comment.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        keep_alive: float,
        clock: Clock,
        *,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        self._group = group
        self._ring_bytes = ring_bytes
        self._keep_alive = keep_alive
        self._clock = clock
        self._hubs: dict[Hashable, list[Hub]] = {}  # the first is the shared one
        self._readers: set[Reader] = set()
        self._closed = False

    def __contains__(self, key: Hashable) -> bool:
        """Whether anybody follows what `key` names."""
        return key in self._hubs

    def can_share(self, key: Hashable, subscription: Subscription) -> bool:
        """Whether a reader that joins now needs no subscription of its own.

        Its position must be known, and what is behind it be at hand.
        """
        hubs = self._hubs.get(key, [])
        return any(hub.owed(subscription, subscription.since) is not None for hub in hubs[:1])

    def join(self, reader: Reader, key: Hashable, subscription: Subscription) -> None:
        """Has a reader follow what `key` names, from where the subscription begins."""
        reader.since = subscription.since
        self._readers.add(reader)
        if self._closed:
            subscription.close()
            reader.end(None)
            return
        hubs = self._hubs.setdefault(key, [])
        if hubs and hubs[0].take_over(reader, subscription):
            subscription.close()
        else:
            ring = Ring(self._ring_bytes, _RING_SECONDS)
            hub = Hub(key, subscription, ring, self._keep_alive, self._clock)
            hub.admit(reader)
            hubs.append(hub)
            hub.task = self._group.create_task(hub.run(self._settle))
            hub.task.add_done_callback(lambda _: self._forget(hub))

    def leave(self, reader: Reader) -> None:
        """Forgets a reader."""
        self._readers.discard(reader)
        if reader.hub is not None:
            reader.hub.leave(reader)

    def close(self) -> None:
        """Ends all streams, as if there were nothing more to come."""
        self._closed = True
        for reader in self._readers:
            reader.end(None)

    def _settle(self, hub: Hub) -> None:
        """Brings readers together again, now that a hub has gone on."""
        hubs = self._hubs[hub.key]
        if hubs[0].is_held_up:  # no place for those who keep up
            hubs.remove(hub)
            hubs.insert(0, hub)
        shared, *others = hubs
        for other in others if hub is shared else (hub,):
            other.move_to(shared)

    def _forget(self, hub: Hub) -> None:
        hub.close()
        self._hubs[hub.key].remove(hub)
        if not self._hubs[hub.key]:
            del self._hubs[hub.key]
