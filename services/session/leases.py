"""The lease streams of this process: what the session has to tell the brain that holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drover.session.v1 import lease_pb2
from services.session.domain import inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from services.session.domain.news import News
    from services.session.domain.ports import Peek
    from services.session.domain.session import SessionRef


class HeldLease:
    """One lease's stream. `changed` is called whenever there is something to see here.

    `sent_seq` is how much of the log its brain has been sent, `expires_at` until when this stream
    has prolonged the lease. `over` says that it is another's, or was given back.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.generation = 0
        self.sent_seq = 0
        self.expires_at = 0
        self.lost = False
        self.released = False
        self._changed = changed
        self._wants_previews = self._previews_due = False
        self._input: lease_pb2.InputWaiting | None = None
        self._newest = lease_pb2.InputWaiting()
        # Up to where of the inbox and of the log the brain was told that something is there.
        self._told_tail = 0
        self._told_seq = 0
        # While an append is on its way, what another replica did cannot be told from it.
        self._appending = False
        self._unread: Peek | None = None

    @property
    def over(self) -> bool:
        """Whether nobody holds the lease by this stream any more."""
        return self.lost or self.released or not self.generation

    def opened(
        self, generation: int, sent_seq: int, inbox_tail: int, expires_at: int | None
    ) -> None:
        """The lease is held, and its brain is being sent all up to these positions.

        `expires_at` is None if it was given back in the same step.
        """
        self.generation = generation
        self.sent_seq, self._told_tail = sent_seq, inbox_tail
        self.expires_at, self.released = expires_at or 0, expires_at is None

    def take_input(self) -> lease_pb2.InputWaiting | None:
        """What waits for the brain, if that has changed since the last time."""
        waiting, self._input = self._input, None
        return waiting

    def want_previews(self) -> None:
        """Somebody would see previews: from now on, until the lease ends."""
        if not self._wants_previews:
            self._wants_previews = self._previews_due = True
            self._changed()

    def take_previews_wanted(self) -> bool:
        """Whether the brain is to be told that previews are wanted; once."""
        due, self._previews_due = self._previews_due, False
        return due

    def begin_append(self) -> None:
        """An append or a renewal is on its way, whose answer says what waits."""
        self._appending = True

    def end_append(self, sent_seq: int, expires_at: int, *, released: bool = False) -> None:
        """It has been answered, and the brain has so much of the log."""
        self._appending, self.sent_seq = False, sent_seq
        self.expires_at, self.released = expires_at, released
        unread, self._unread = self._unread, None
        if unread is not None:
            self.see(unread)

    def tell(self, waiting: lease_pb2.InputWaiting, inbox_tail: int) -> None:
        """Input has come, or the log has grown."""
        if inbox_tail < self._told_tail:  # overtaken by what came after it
            if not waiting.log_grown:
                return
            newest = lease_pb2.InputWaiting()
            newest.CopyFrom(self._newest)
            waiting, newest.log_grown = newest, True
        self._told_tail, self._newest = max(inbox_tail, self._told_tail), waiting
        if self._input is not None and self._input.log_grown:
            waiting.log_grown = True  # until the brain is told
        self._input = waiting
        self._changed()

    def see(self, peek: Peek) -> None:
        """What the database says of the session now: another replica may have changed it."""
        if peek.generation < self.generation:
            return  # looked up before the lease was taken
        if peek.generation > self.generation or not peek.held:
            self.lose()
        elif self._appending:
            self._unread = peek
        else:
            grown = peek.head_seq > max(self.sent_seq, self._told_seq)
            if grown or peek.inbox_tail > self._told_tail:
                self._told_seq = max(self._told_seq, peek.head_seq)
                self.tell(inbox.summary(peek.waiting, log_grown=grown), peek.inbox_tail)

    def lose(self) -> None:
        """The lease is another's, or nobody's."""
        self.lost = True
        self._changed()


class Leases:
    """The leases whose streams end in this process, by session.

    `deserted` is told of a lease whose stream broke: its session, generation and `expires_at`.
    """

    def __init__(self, deserted: Callable[[SessionRef, int, int], None] | None = None) -> None:
        self._held: dict[str, HeldLease] = {}
        self._deserted = deserted

    @property
    def sessions(self) -> Collection[str]:
        """The sessions whose lease is held here."""
        return self._held.keys()

    def add(self, session_id: str, held: HeldLease) -> None:
        """Notes a stream. One of an older generation, or a broken one, is told that it is over."""
        before = self._held.get(session_id)
        self._held[session_id] = held
        if before is not None:
            before.lose()

    def discard(self, ref: SessionRef, held: HeldLease) -> None:
        """Forgets a stream, which has ended."""
        if self._held.get(ref.session_id) is held:
            del self._held[ref.session_id]
            if self._deserted is not None and not held.over:
                self._deserted(ref, held.generation, held.expires_at)

    def want_previews(self, session_id: str) -> None:
        """Passes on that somebody would see a session's previews."""
        held = self._held.get(session_id)
        if held is not None:
            held.want_previews()

    def hear(self, news: News) -> None:
        """Passes on what concerns a brain at work."""
        held = self._held.get(news.ref.session_id)
        if held is None:
            return
        if news.fenced and (news.deleted or held.generation < news.generation):
            held.lose()
        elif news.input is not None:
            held.tell(news.input, news.inbox_tail)

    def see(self, peek: Peek) -> None:
        """Passes on what another replica has done."""
        held = self._held.get(peek.ref.session_id)
        if held is not None:
            held.see(peek)
