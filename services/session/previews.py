"""Previews on their way to other replicas: of the sessions that they want them of, and bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drover.session.v1 import notice_pb2, preview_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chassis.clock import Clock
    from services.session.domain.news import News

WANTED_SECONDS: Final = 10.0
"""How long a wish for a session's previews holds. It is repeated every few seconds."""

_MAX_CHARACTERS: Final = 64 * 1024
_PIECE: Final = 1_000
"""Characters of one delta, so that it fits a notice whatever they are."""


class PreviewRelay:
    """What waits to be sent: deltas that wait are joined, and dropped when there are too many.

    An event of which a delta was dropped gets no more of them, nor does one whose start was not
    sent.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wanted: dict[str, float] = {}
        self._begun: dict[str, set[str]] = {}
        self._waiting: list[notice_pb2.SessionPreview] = []
        self._last: dict[str, notice_pb2.SessionPreview] = {}
        self._characters = 0

    def want(self, session_ids: Iterable[str]) -> None:
        """Another replica wants the previews of these sessions."""
        until = self._clock.monotonic() + WANTED_SECONDS
        self._wanted.update(dict.fromkeys(session_ids, until))

    def wants(self, session_id: str) -> bool:
        """Whether another replica wants the previews of a session."""
        return session_id in self._wanted

    def prune(self) -> None:
        """Forgets the wishes that were not repeated."""
        now = self._clock.monotonic()
        for session_id in [one for one, until in self._wanted.items() if until <= now]:
            del self._wanted[session_id]
            self._begun.pop(session_id, None)

    def add(self, session_id: str, preview: preview_pb2.Preview) -> bool:
        """Has a preview sent, if it is wanted anywhere and there is room; whether it will be."""
        if session_id not in self._wanted:
            return False
        begun = self._begun.setdefault(session_id, set())
        if preview.HasField("event_start"):
            begun.add(preview.event_start.event.id)
            self._put(session_id, preview)
            return True
        delta = preview.event_delta
        if delta.event_id not in begun:
            return False
        text = delta.delta.content.text
        self._characters += len(text)
        if self._characters > _MAX_CHARACTERS:
            begun.discard(delta.event_id)
            return False
        if not self._join(session_id, delta):
            for start in range(0, max(len(text), 1), _PIECE):
                piece = preview_pb2.Preview()
                piece.CopyFrom(preview)
                piece.event_delta.delta.content.text = text[start : start + _PIECE]
                self._put(session_id, piece)
        return True

    def hear(self, news: News) -> None:
        """Forgets events that are complete, or will never be."""
        begun = self._begun.get(news.ref.session_id)
        if not begun:
            return
        for event in news.stamped:
            if event.HasField("span_model_request_end"):
                begun.clear()
            else:
                begun.discard(event.id)

    def take(self) -> list[notice_pb2.SessionPreview]:
        """All that waits."""
        waiting, self._waiting, self._characters = self._waiting, [], 0
        self._last.clear()
        return waiting

    def _put(self, session_id: str, preview: preview_pb2.Preview) -> None:
        one = notice_pb2.SessionPreview(session_id=session_id, preview=preview)
        self._waiting.append(one)
        self._last[session_id] = one

    def _join(self, session_id: str, delta: preview_pb2.EventDelta) -> bool:
        last = self._last.get(session_id)
        if last is None or not last.preview.HasField("event_delta"):
            return False
        before = last.preview.event_delta
        if (before.event_id, before.delta.index) != (delta.event_id, delta.delta.index):
            return False
        joined = before.delta.content.text + delta.delta.content.text
        if len(joined) > _PIECE:
            return False
        before.delta.content.text = joined
        return True
