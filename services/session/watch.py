"""What other replicas of the service have committed to the sessions that matter here.

They are looked up in the database: at once when another replica says that it has changed something,
and every second, whatever is said. Polling is the truth, what is said makes it early.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError
from services.session.domain import lifecycle
from services.session.domain.log import unstamp
from services.session.domain.ports import InboxQuery, LogQuery
from services.session.domain.session import SessionRef
from services.session.feed import Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from drover.event.v1 import event_pb2
    from drover.session.v1 import notice_pb2
    from services.session.dispatch import Dispatcher
    from services.session.domain.ports import Peek, SessionStore, Transaction
    from services.session.feed import Feed
    from services.session.leases import Leases

POLL_SECONDS: Final = 1.0

_SESSIONS: Final = 500
"""As many are looked up at a time."""
_PAGE_EVENTS: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024
_MOST_BYTES: Final = 16 * 1024 * 1024
"""What one look reads of all sessions' events; the rest is looked at right behind."""

_log = structlog.get_logger("session.watch")


@dataclass(slots=True)
class _Sight:
    """What one look has found at `now`. Of `unfinished` sessions there is more to be seen."""

    now: int
    peeks: Mapping[str, Peek]
    slices: dict[str, Slice] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)


class Watch:
    """Tells the feed, the leases and the dispatcher of this process what others have done.

    `ring` is called with environments in which work was queued. `hints` and `polls` count what made
    it look.
    """

    def __init__(
        self,
        store: SessionStore,
        feed: Feed,
        leases: Leases,
        dispatcher: Dispatcher,
        *,
        ring: Callable[[str], None] = lambda _: None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._store = store
        self._feed = feed
        self._leases = leases
        self._dispatcher = dispatcher
        self._ring = ring
        self._poll_seconds = poll_seconds
        self.hints = self.polls = 0
        # In order, so that none waits for ever.
        self._due: dict[str, None] = {}
        self._rung = asyncio.Event()

    def look(self, changes: Iterable[notice_pb2.SessionChange]) -> None:
        """Another replica has changed something: looks at what of it matters here."""
        self.hints += 1
        followed, held = self._feed.sessions, self._leases.sessions
        visited = self._dispatcher.sessions
        for change in changes:
            session_id = change.session_id
            if change.work:
                self._ring(change.work)
            if (
                (change.grown and session_id in followed)
                or (change.input and session_id in held)
                or (change.lease and session_id in visited)
            ):
                self.look_at(session_id)

    def look_at(self, session_id: str) -> None:
        """Looks at a session as soon as it can be."""
        self._due[session_id] = None
        self._rung.set()

    def look_everywhere(self) -> None:
        """Looks at every session that matters here."""
        matters = (self._feed.sessions, self._leases.sessions, self._dispatcher.sessions)
        self._due.update(dict.fromkeys(itertools.chain(*matters)))
        if self._due:
            self._rung.set()

    async def run(self) -> None:
        """Looks until cancelled."""
        loop = asyncio.get_running_loop()
        poll = 0.0
        while True:
            if loop.time() >= poll:
                self.polls += 1
                self.look_everywhere()
                # Not in step with the other replicas.
                poll = loop.time() + self._poll_seconds * random.uniform(0.75, 1.25)  # noqa: S311
            try:
                async with asyncio.timeout_at(poll):
                    await self._rung.wait()
            except TimeoutError:
                continue
            try:
                await self._look()
            except DroverError as error:
                _log.warning("look_failed", reason=error.reason, message=error.message)

    async def _look(self) -> None:
        batch = list(itertools.islice(self._due, _SESSIONS))
        for session_id in batch:
            del self._due[session_id]
        if not self._due:
            self._rung.clear()
        positions = {one: at for one in batch if (at := self._feed.position(one)) is not None}
        sight = await self._store.read(lambda tx: _sight(tx, batch, positions))
        for session_id in batch:
            self._tell(session_id, sight)
        for session_id in sight.unfinished:
            self.look_at(session_id)

    def _tell(self, session_id: str, sight: _Sight) -> None:
        peek = sight.peeks.get(session_id)
        if peek is None:
            gone = lifecycle.deleted(SessionRef("", session_id), sight.now, fenced=True)
            self._feed.hear(gone)
            self._leases.hear(gone)
            return
        # Readers first: an echo comes before what the brain makes of it.
        if (found := sight.slices.get(session_id)) is not None:
            self._feed.fill(session_id, found)
        if peek.ended and session_id not in sight.unfinished:
            self._feed.end(session_id)
        self._leases.see(peek)
        self._dispatcher.see(peek)


def _sight(
    tx: Transaction, session_ids: Collection[str], positions: Mapping[str, tuple[int, int]]
) -> _Sight:
    sight, used = _Sight(tx.now(), tx.peek(session_ids)), 0
    for session_id, (head, tail) in positions.items():
        peek = sight.peeks.get(session_id)
        if peek is None or (peek.head_seq <= head and peek.inbox_tail <= tail):
            continue
        if used > _MOST_BYTES:
            sight.unfinished.add(session_id)
            continue
        found, more = _slice(tx, peek, head, tail)
        events = itertools.chain((event for _, event in found.echoes), found.stamped)
        used += sum(event.ByteSize() for event in events)
        sight.slices[session_id] = found
        if more:
            sight.unfinished.add(session_id)
    return sight


def _slice(tx: Transaction, peek: Peek, head: int, tail: int) -> tuple[Slice, bool]:
    """What a session has beyond two positions, and whether there is more.

    What has been taken from the inbox meanwhile is echoed too, as it was before it was stamped.
    """
    session_id = peek.ref.session_id
    echoes: list[tuple[int, event_pb2.Event]] = []
    stamped: list[event_pb2.Event] = []
    if peek.inbox_tail > tail:
        waiting = InboxQuery(head, tail, peek.inbox_tail, _PAGE_EVENTS, _PAGE_BYTES)
        entries, more = tx.inbox(session_id, waiting)
        for entry in entries:
            unstamp(entry.event)
            echoes.append((entry.position, entry.event))
        if more:
            return Slice(echoes, [], entries[-1].position), True
    more = False
    if peek.head_seq > head:
        query = LogQuery(head, peek.head_seq, _PAGE_EVENTS, _PAGE_BYTES)
        stamped, more = tx.log(session_id, query)
    return Slice(echoes, stamped, peek.inbox_tail), more
