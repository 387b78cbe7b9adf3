"""What transactions that share a commit know of the database, and have to tell it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.session.store.writes import Writes
from storage import answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from drover.api.v1.request_key_pb2 import RequestKey
    from services.session.domain.ports import Call
    from services.session.store.inbox import Waiting
    from services.session.store.pairs import Pair
    from services.session.store.sessions import SessionRow
    from storage.answers import Kept


@dataclass(slots=True)
class Known:
    """What need not be asked of the database: it was read under the session's lock, or written.

    `events` are those of the log and `queued_ids` those that wait: the body of one that was written
    here, or whether the database has it. `windows` are the oldest events that waited in an inbox,
    and whether those are all; of what has changed since, `queued` came and `taken` went. `answers`
    are by the ids of their requests.
    """

    sessions: dict[str, SessionRow | None] = field(default_factory=dict)
    details: dict[str, SessionRow] = field(default_factory=dict)
    events: dict[Pair, bytes | bool] = field(default_factory=dict)
    calls: dict[Pair, Call | None] = field(default_factory=dict)
    queued_ids: dict[Pair, bytes | bool] = field(default_factory=dict)
    windows: dict[str, tuple[list[Waiting], bool]] = field(default_factory=dict)
    queued: dict[str, list[Waiting]] = field(default_factory=dict)
    taken: dict[str, set[int]] = field(default_factory=dict)
    answers: dict[bytes, Kept | None] = field(default_factory=dict)

    def absorb(self, later: Known) -> None:
        """Adds what a later transaction knows."""
        self.sessions |= later.sessions
        self.details |= later.details
        self.events |= later.events
        self.calls |= later.calls
        self.queued_ids |= later.queued_ids
        self.answers |= later.answers
        for session_id, rows in later.queued.items():
            self.queued.setdefault(session_id, []).extend(rows)
        for session_id, positions in later.taken.items():
            self.taken.setdefault(session_id, set()).update(positions)

    def forget(self, session_id: str) -> None:
        """Drops all about a session, so that it is asked for again."""
        for by_id in (self.sessions, self.details, self.windows, self.queued, self.taken):
            by_id.pop(session_id, None)
        for by_pair in (self.events, self.calls, self.queued_ids):
            for pair in [pair for pair in by_pair if pair[0] == session_id]:
                del by_pair[pair]
        for key_id, kept in list(self.answers.items()):
            if kept is not None and kept.about == session_id:
                del self.answers[key_id]


def _nothing(_connection: Connection, _key: RequestKey) -> None:
    """Where nobody else writes."""


class Unit:
    """One transaction of the database, which those of the store share or have for themselves.

    `fetch` reads a session's row, locked where that is called for; `reserve` keeps others from a
    request; `clock` tells the time, unless something that was read has told it already. With
    `shared` each of the store's transactions can be undone alone: in memory, or by a savepoint once
    the database was told of it. A `hopeful` one does not ask whether what is new is new: the
    database refuses what is not, and then another unit is.
    """

    def __init__(
        self,
        connection: Connection,
        fetch: Callable[[Unit, str], SessionRow | None],
        clock: Callable[[Connection], int],
        *,
        reserve: Callable[[Connection, RequestKey], None] = _nothing,
        shared: bool = False,
        hopeful: bool = False,
    ) -> None:
        self.connection = connection
        self.known = Known()
        self.writes = Writes()
        self.time: int | None = None
        self._fetch = fetch
        self._clock = clock
        self._reserve = reserve
        self.hopeful = hopeful
        self._shared = shared
        self._saved = False

    def now(self) -> int:
        """The database's time, the same throughout."""
        if self.time is None:
            self.time = self._clock(self.connection)
        return self.time

    def session(self, session_id: str) -> SessionRow | None:
        """A session's row as it was before the transaction at hand."""
        known = self.known.sessions
        if session_id not in known:
            known[session_id] = self._fetch(self, session_id)
        return known[session_id]

    def kept(self, key: RequestKey) -> Kept | None:
        """What is kept under a request as it was before the transaction at hand."""
        known = self.known.answers
        if key.id not in known:
            self._reserve(self.connection, key)
            known[key.id] = answers.load(self.connection, key)
        return known[key.id]

    def settle(self, writes: Writes) -> None:
        """Tells the database what was written before, and `writes` of the transaction at hand."""
        self.writes.flush(self.connection)
        if self._shared and not self._saved:
            self.connection.exec_driver_sql("SAVEPOINT one")
            self._saved = True
        writes.flush(self.connection)

    def keep(self, known: Known, writes: Writes) -> None:
        """Ends the transaction at hand: it will be committed with the others."""
        if self._saved:
            self.connection.exec_driver_sql("RELEASE SAVEPOINT one")
            self._saved = False
        self.known.absorb(known)
        self.writes.absorb(writes)

    def undo(self) -> None:
        """Ends the transaction at hand as if it had never been."""
        if self._saved:
            self.connection.exec_driver_sql("ROLLBACK TO SAVEPOINT one")
            self.connection.exec_driver_sql("RELEASE SAVEPOINT one")
            self._saved = False

    def flush(self) -> None:
        """Tells the database all that was written."""
        self.writes.flush(self.connection)
