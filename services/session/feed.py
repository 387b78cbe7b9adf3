"""The live feed: who follows a session, and what they have yet to be sent.

A subscriber registers first, catches up from the database, then follows memory. Its buffer is
bounded: when it overflows it is emptied and the subscriber reads the database again from where it
is. Positions tell gaps and duplicates, so nothing depends on when the news arrives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drover.session.v1 import session_service_pb2 as pb

if TYPE_CHECKING:
    from drover.event.v1 import event_pb2
    from drover.session.v1 import preview_pb2
    from services.session.domain.news import News

MAX_FRAMES: Final = 1024
MAX_BYTES: Final = 8 * 1024 * 1024
_MAX_PREVIEWS: Final = MAX_FRAMES // 2
"""Previews stop here, so that they never push an event out."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame for every subscriber. `seq` is the event's position, 0 where it has none.

    `data` is a response of this frame alone in wire form, which a stream's response of several
    frames, of either type, is joined from: so an event is serialized once for all.
    """

    data: bytes
    seq: int
    id: str


def event_frame(event: event_pb2.Event) -> Frame:
    """The frame of an event."""
    response = pb.StreamEventsResponse()
    response.frames.add().event.CopyFrom(event)
    return Frame(response.SerializeToString(), event.seq, event.id)


def _preview_frame(preview: preview_pb2.Preview) -> Frame:
    response = pb.StreamEventsResponse()
    response.frames.add().preview.CopyFrom(preview)
    return Frame(response.SerializeToString(), 0, "")


class Subscription:
    """What one subscriber has yet to be sent.

    `overflowed` is set when frames were thrown away; `ended` when nothing more will come. Previews
    reach only those who asked for the event's type and were there when it began; one whose delta
    had to be dropped gets no more of that event's.
    """

    def __init__(self, previews: frozenset[str] = frozenset()) -> None:
        self.overflowed = False
        self.ended = False
        self._previews = previews
        self._previewed: set[str] = set()
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()

    async def take(self) -> list[Frame]:
        """All frames that wait, once there are any, or once one of the flags is set."""
        await self._changed.wait()
        self._changed.clear()
        frames = list(self._frames)
        self._frames.clear()
        self._bytes = 0
        return frames

    def offer(self, frame: Frame) -> None:
        """Adds an event; throws the buffer away when it is over its bounds."""
        self._changed.set()
        if self.overflowed:
            return
        size = len(frame.data)
        self._frames.append(frame)
        self._bytes += size
        if len(self._frames) > MAX_FRAMES or self._bytes > max(MAX_BYTES, size):
            self.overflowed = True
            self._frames.clear()
            self._previewed.clear()
            self._bytes = 0

    def offer_preview(self, preview: preview_pb2.Preview, frame: Frame) -> None:
        """Adds a preview where it is wanted and there is room."""
        if not self._previews:
            return
        if preview.HasField("event_start"):
            event = preview.event_start.event
            if event.type not in self._previews:
                return
            event_id = event.id
        else:
            event_id = preview.event_delta.event_id
            if event_id not in self._previewed:
                return
        if self.overflowed or len(self._frames) >= _MAX_PREVIEWS:
            self._previewed.discard(event_id)
            return
        self._previewed.add(event_id)
        self._frames.append(frame)
        self._bytes += len(frame.data)
        self._changed.set()

    def end_previews(self, event: event_pb2.Event) -> None:
        """Forgets previews that a stamped event puts an end to."""
        if event.HasField("span_model_request_end"):
            self._previewed.clear()
        else:
            self._previewed.discard(event.id)

    def end(self, last: Frame | None) -> None:
        """Nothing more will come, but for a last frame."""
        if last is not None:
            self._frames.append(last)
        self.ended = True
        self._changed.set()


class Feed:
    """Every subscription of this process, by session."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, set[Subscription]] = {}

    def subscribe(self, session_id: str, previews: frozenset[str]) -> Subscription:
        """Registers a subscriber: it will be offered whatever is told from now on."""
        subscription = Subscription(previews)
        self._subscriptions.setdefault(session_id, set()).add(subscription)
        return subscription

    def followers(self, session_id: str) -> int:
        """How many follow a session."""
        return len(self._subscriptions.get(session_id, ()))

    def unsubscribe(self, session_id: str, subscription: Subscription) -> None:
        """Forgets a subscriber."""
        subscriptions = self._subscriptions.get(session_id, set())
        subscriptions.discard(subscription)
        if not subscriptions:
            self._subscriptions.pop(session_id, None)

    def hear(self, news: News) -> None:
        """Offers what was committed to those who follow the session."""
        subscriptions = self._subscriptions.get(news.ref.session_id)
        if not subscriptions:
            return
        last = None
        for event in (*news.echoes, *news.stamped):
            frame = event_frame(event)
            if event.HasField("session_deleted"):
                last = frame
                continue
            for subscription in subscriptions:
                subscription.offer(frame)
                if event.seq:
                    subscription.end_previews(event)
        if news.ends:
            for subscription in subscriptions:
                subscription.end(last)

    def preview(self, session_id: str, preview: preview_pb2.Preview) -> None:
        """Offers a glimpse of an event that is still being written."""
        subscriptions = self._subscriptions.get(session_id)
        if not subscriptions:
            return
        frame = _preview_frame(preview)
        for subscription in subscriptions:
            subscription.offer_preview(preview, frame)
