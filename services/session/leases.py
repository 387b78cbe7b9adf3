"""The lease streams of this process: what the session has to tell the brain that holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from drover.session.v1 import lease_pb2
    from services.session.domain.news import News


class HeldLease:
    """One lease's stream. `changed` is called whenever there is something to see here."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.generation = 0
        self.lost = False
        self._input: lease_pb2.InputWaiting | None = None
        self._changed = changed

    def take_input(self) -> lease_pb2.InputWaiting | None:
        """What waits for the brain, if that has changed since the last time."""
        waiting, self._input = self._input, None
        return waiting

    def tell(self, waiting: lease_pb2.InputWaiting) -> None:
        """Input has come, or the log has grown."""
        grown = waiting.log_grown or (self._input is not None and self._input.log_grown)
        waiting.log_grown = grown  # until the brain is told
        self._input = waiting
        self._changed()

    def lose(self) -> None:
        """The lease is another's, or nobody's."""
        self.lost = True
        self._changed()


class Leases:
    """The leases whose streams end in this process, by session."""

    def __init__(self) -> None:
        self._held: dict[str, HeldLease] = {}

    def add(self, session_id: str, held: HeldLease) -> None:
        """Notes a stream. One of an older generation, or a broken one, is told that it is over."""
        before = self._held.get(session_id)
        self._held[session_id] = held
        if before is not None:
            before.lose()

    def discard(self, session_id: str, held: HeldLease) -> None:
        """Forgets a stream."""
        if self._held.get(session_id) is held:
            del self._held[session_id]

    def hear(self, news: News) -> None:
        """Passes on what concerns a brain at work."""
        held = self._held.get(news.ref.session_id)
        if held is None:
            return
        if news.fenced and (news.deleted or held.generation < news.generation):
            held.lose()
        elif news.input is not None:
            held.tell(news.input)
