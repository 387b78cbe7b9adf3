"""The live feed: who follows a session, and what they have yet to be sent.

A subscriber registers first, catches up from the database, then follows memory. Its buffer is
bounded: when it overflows it is emptied and the subscriber reads the database again from where it
is. Positions, of the log and of the inbox, tell gaps and duplicates, so nothing depends on when the
news arrives, nor on which replica of the service brings it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from drover.session.v1 import session_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

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

    `place` is an unstamped event's position in the inbox, 0 for all others. `data` is a response of
    this frame alone in wire form, which a stream's response of several frames, of either type, is
    joined from: so an event is serialized once for all.
    """

    data: bytes
    seq: int
    id: str
    place: int = 0


def event_frame(event: event_pb2.Event, place: int = 0) -> Frame:
    """The frame of an event."""
    response = pb.StreamEventsResponse()
    response.frames.add().event.CopyFrom(event)
    return Frame(response.SerializeToString(), event.seq, event.id, place)


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
        self.previews = previews
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
        if not self.previews:
            return
        if preview.HasField("event_start"):
            event = preview.event_start.event
            if event.type not in self.previews:
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

    def break_previews(self) -> None:
        """Forgets every preview: of those that have begun something was lost."""
        self._previewed.clear()

    def end(self, last: Frame | None) -> None:
        """Nothing more will come, but for a last frame."""
        if self.ended:
            return
        if last is not None:
            self._frames.append(last)
        self.ended = True
        self._changed.set()


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of what a session's readers are told: echoes with their places, stamped events.

    `tail` is up to where of the inbox this tells, 0 where it tells nothing of it.
    """

    echoes: list[tuple[int, event_pb2.Event]]
    stamped: list[event_pb2.Event]
    tail: int


class Elsewhere(Protocol):
    """The other replicas of the service, where they can be asked. Its methods must not wait."""

    def fetch(self, session_id: str) -> None:
        """Something of a session was missed here: have it read and told."""
        ...

    def want_previews(self, session_id: str) -> None:
        """Someone here would see a session's previews, wherever its brain is held."""
        ...

    def wants_previews(self, session_id: str) -> bool:
        """Whether someone there would see a session's previews."""
        ...


@dataclass(slots=True)
class _Topic:
    """A session that is followed here, and up to where it was told of: `None` is not known yet.

    `relayed` says that previews of it came from another replica.
    """

    subscriptions: set[Subscription] = field(default_factory=set)
    head: int | None = None
    tail: int | None = None
    relayed: bool = False

    @property
    def wants_previews(self) -> bool:
        """Whether somebody here would see previews."""
        return any(subscription.previews for subscription in self.subscriptions)

    def lacks(self, news: News) -> bool:
        """Whether something before the news has not been told."""
        first = next((event.seq for event in news.stamped if event.seq), 0)
        if self.head is not None and first > self.head + 1:
            return True
        return (
            self.tail is not None
            and bool(news.echoes)
            and news.inbox_tail - len(news.echoes) > self.tail
        )

    def offer(self, found: Slice) -> None:
        """Offers what of a slice has not been told, and notes that it has."""
        head, tail = self.head, self.tail
        frames = [
            event_frame(event, place)
            for place, event in found.echoes
            if tail is None or place > tail
        ]
        stamped = [event for event in found.stamped if head is None or event.seq > head]
        frames += map(event_frame, stamped)
        for subscription in self.subscriptions:
            for frame in frames:
                subscription.offer(frame)
            for event in stamped:
                subscription.end_previews(event)
        self.move(stamped[-1].seq if stamped else None, found.tail or None)

    def move(self, head: int | None, tail: int | None) -> None:
        """All up to these positions has been told."""
        if head is not None:
            self.head = max(head, self.head or 0)
        if tail is not None:
            self.tail = max(tail, self.tail or 0)


class Feed:
    """Every subscription of this process, by session.

    `wanted` is told of sessions of which somebody, here or elsewhere, would see previews.
    """

    def __init__(self, wanted: Callable[[str], None] | None = None) -> None:
        self._wanted = wanted
        self._topics: dict[str, _Topic] = {}
        self._elsewhere: Elsewhere | None = None

    def join(self, elsewhere: Elsewhere) -> None:
        """From now on there are other replicas, which may commit what is followed here."""
        self._elsewhere = elsewhere

    @property
    def sessions(self) -> Collection[str]:
        """The sessions that are followed."""
        return self._topics.keys()

    @property
    def subscriptions(self) -> int:
        """How many subscribers there are."""
        return sum(len(topic.subscriptions) for topic in self._topics.values())

    def wanted_previews(self) -> list[str]:
        """The sessions of which somebody wants previews."""
        return [session_id for session_id, topic in self._topics.items() if topic.wants_previews]

    def position(self, session_id: str) -> tuple[int, int] | None:
        """Up to which positions of its log and of its inbox a session has been told of, if any."""
        topic = self._topics.get(session_id)
        if topic is None or topic.head is None or topic.tail is None:
            return None
        return topic.head, topic.tail

    def subscribe(self, session_id: str, previews: frozenset[str]) -> Subscription:
        """Registers a subscriber: it will be offered whatever is told from now on."""
        subscription = Subscription(previews)
        self._topics.setdefault(session_id, _Topic()).subscriptions.add(subscription)
        if previews:
            if self._elsewhere is not None:
                self._elsewhere.want_previews(session_id)
            self.want_previews((session_id,))
        return subscription

    def want_previews(self, session_ids: Iterable[str]) -> None:
        """Someone would see these sessions' previews."""
        if self._wanted is not None:
            for session_id in session_ids:
                self._wanted(session_id)

    def wants_previews(self, session_id: str) -> bool:
        """Whether anybody would see a session's previews."""
        topic = self._topics.get(session_id)
        if topic is not None and topic.wants_previews:
            return True
        return self._elsewhere is not None and self._elsewhere.wants_previews(session_id)

    def place(self, session_id: str, head: int, tail: int) -> None:
        """A subscriber has found the database at these positions."""
        topic = self._topics.get(session_id)
        if topic is None:
            return
        if topic.head is None:
            topic.move(head, None)
        if topic.tail is None:
            topic.move(None, tail)
        behind = head > (topic.head or 0) or tail > (topic.tail or 0)
        if behind and self._elsewhere is not None:
            self._elsewhere.fetch(session_id)

    def followers(self, session_id: str) -> int:
        """How many follow a session."""
        topic = self._topics.get(session_id)
        return 0 if topic is None else len(topic.subscriptions)

    def unsubscribe(self, session_id: str, subscription: Subscription) -> None:
        """Forgets a subscriber."""
        topic = self._topics.get(session_id)
        if topic is None:
            return
        topic.subscriptions.discard(subscription)
        if not topic.subscriptions:
            del self._topics[session_id]

    def hear(self, news: News) -> None:
        """Offers what was committed to those who follow the session, each event once.

        Where something before it is missing, that was committed by another replica: all of it is
        then told in its order, from the database.
        """
        topic = self._topics.get(news.ref.session_id)
        if topic is None:
            return
        if self._elsewhere is not None and topic.lacks(news):
            self._elsewhere.fetch(news.ref.session_id)
            return
        first = news.inbox_tail - len(news.echoes) + 1
        stamped = [event for event in news.stamped if event.seq]
        tail = news.inbox_tail if news.echoes else 0
        topic.offer(Slice(list(enumerate(news.echoes, first)), stamped, tail))
        if news.ends:
            self.end(news.ref.session_id, next((one for one in news.stamped if not one.seq), None))

    def fill(self, session_id: str, found: Slice) -> None:
        """Offers what another replica committed, beyond the `position` that was told."""
        topic = self._topics.get(session_id)
        if topic is not None:
            topic.offer(found)

    def end(self, session_id: str, last: event_pb2.Event | None = None) -> None:
        """Ends the streams of a session that is at its end, behind a last event if there is one."""
        topic = self._topics.get(session_id)
        if topic is None:
            return
        frame = event_frame(last) if last is not None else None
        for subscription in topic.subscriptions:
            subscription.end(frame)

    def preview(self, session_id: str, preview: preview_pb2.Preview) -> None:
        """Offers a glimpse of an event that is still being written."""
        topic = self._topics.get(session_id)
        if topic is None:
            return
        frame = _preview_frame(preview)
        for subscription in topic.subscriptions:
            subscription.offer_preview(preview, frame)

    def relay(self, session_id: str, preview: preview_pb2.Preview) -> None:
        """Offers a glimpse that another replica has sent."""
        topic = self._topics.get(session_id)
        if topic is not None:
            topic.relayed = True
            self.preview(session_id, preview)

    def break_relayed(self) -> None:
        """Ends every preview that comes from other replicas: something of them was lost."""
        for topic in self._topics.values():
            if topic.relayed:
                topic.relayed = False
                for subscription in topic.subscriptions:
                    subscription.break_previews()
