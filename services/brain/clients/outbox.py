"""What waits to be written to a lease's stream."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from drover.session.v1.lease_pb2 import HoldLeaseRequest, LeaseRequest
from services.brain.clients.failures import translated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from drover.session.v1.preview_pb2 import Preview

DELTA_INTERVAL: Final = 0.015
"""Seconds between deltas, for which the ones that come meanwhile are joined."""

MAX_PREVIEWS: Final = 256
"""Previews that may wait; a connection that far behind ends the preview of the event."""

_MESSAGE_BYTES: Final = 1024 * 1024
"""What one message carries of several requests."""


class Outbox:
    """A queue in which previews give way: deltas that wait are joined, and dropped when too many.

    Appends are never dropped; their number is bounded by who waits for their acknowledgements.
    Unless previews are `wanted` none are sent, of an event from its beginning or not at all.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._queue: deque[LeaseRequest] = deque()
        self._wakeup = asyncio.Event()
        self._previews = 0
        self._next_delta = 0.0
        # Events whose preview has begun on this connection, and those whose preview ended early.
        self._begun: set[str] = set()
        self._dropped: set[str] = set()

    def put(self, request: LeaseRequest) -> None:
        """Queues an append or a renewal, behind the previews that wait."""
        self._queue.append(request)
        self._wakeup.set()

    def put_preview(self, preview: Preview) -> None:
        """Queues a preview, joins it to the one before, or drops it with the rest of its event."""
        delta = preview.event_delta if preview.HasField("event_delta") else None
        event_id = delta.event_id if delta is not None else preview.event_start.event.id
        if event_id in self._dropped:
            return
        if not self.wanted and event_id not in self._begun:
            self._dropped.add(event_id)
            return
        if delta is not None and self._queue and self._queue[-1].HasField("preview"):
            last = self._queue[-1].preview.event_delta
            if last.event_id == event_id and last.delta.index == delta.delta.index:
                last.delta.content.text += delta.delta.content.text
                return
        if self._previews >= MAX_PREVIEWS:
            self._dropped.add(event_id)
            return
        self._previews += 1
        self._begun.add(event_id)
        self.put(LeaseRequest(preview=preview))

    async def drain(self, write: Callable[[HoldLeaseRequest], Awaitable[None]]) -> None:
        """Writes whatever is queued, together, for ever."""
        while True:
            while self._queue:
                if len(self._queue) == 1 and _is_delta(self._queue[0]):
                    await self._pace()
                message = HoldLeaseRequest(requests=self._take())
                with translated("the session service"):
                    await write(message)
            self._wakeup.clear()
            await self._wakeup.wait()

    def _take(self) -> list[LeaseRequest]:
        taken = [self._queue.popleft()]
        size = taken[0].ByteSize() if self._queue else 0
        while self._queue and (size := size + self._queue[0].ByteSize()) <= _MESSAGE_BYTES:
            taken.append(self._queue.popleft())
        self._previews -= sum(request.HasField("preview") for request in taken)
        return taken

    async def _pace(self) -> None:
        """Gives a single delta time to grow, unless something else comes."""
        loop = asyncio.get_running_loop()
        if (pause := self._next_delta - loop.time()) > 0:
            self._wakeup.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wakeup.wait()
        self._next_delta = loop.time() + DELTA_INTERVAL

    def restart(self, requests: Sequence[LeaseRequest]) -> None:
        """Begins again on a new connection: with `requests`, and without the previews begun before.

        What the old connection has swallowed of them is not known, and deltas must leave no gap.
        """
        self._dropped |= self._begun
        self._begun.clear()
        self._previews = 0
        self._queue = deque(requests)
        self._wakeup.set()


def _is_delta(request: LeaseRequest) -> bool:
    return request.HasField("preview") and request.preview.HasField("event_delta")
