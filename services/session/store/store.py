"""The store: the domain's transactions over `storage`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from services.session.store import calls, events, inbox, releases, sessions, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import Connection

    from chassis.clock import Clock
    from drover.event.v1 import event_pb2
    from services.session.domain.event import InputClass
    from services.session.domain.ports import (
        Call,
        HandRelease,
        InboxEntry,
        InboxQuery,
        LogEntry,
        LogQuery,
        Need,
        SessionQuery,
        Transaction,
    )
    from services.session.domain.session import (
        SessionDetails,
        SessionRef,
        SessionState,
        ThreadState,
    )
    from storage import Database

T = TypeVar("T")


class SqlSessionStore:
    """Sessions in a database that this service owns.

    `clock` is the database's: with SQLite that is this process's own, since no other opens the
    file.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def read(self, fn: Callable[[Transaction], T], /) -> T:
        """Runs `fn` on a snapshot of what is committed."""
        return await self._database.read(lambda connection: fn(self._transaction(connection)))

    async def write(self, fn: Callable[[Transaction], T], /) -> T:
        """Runs `fn` in a transaction and returns once it is durable."""
        return await self._database.write(lambda connection: fn(self._transaction(connection)))

    def _transaction(self, connection: Connection) -> SqlTransaction:
        return SqlTransaction(connection, int(self._clock.now().timestamp() * 1_000_000))


class SqlTransaction:
    """One transaction on one connection: see `ports.Transaction`."""

    __slots__ = ("_connection", "_now")

    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self._now = now

    def now(self) -> int:
        """The database's time."""
        return self._now

    def state(self, ref: SessionRef) -> SessionState | None:
        """A session's state."""
        return sessions.get(self._connection, ref)

    def details(self, session_id: str) -> SessionDetails:
        """The large part of a session."""
        return sessions.get_details(self._connection, session_id)

    def create(self, state: SessionState, details: SessionDetails, thread: ThreadState) -> None:
        """Adds a session with its primary thread."""
        sessions.add(self._connection, state, details)
        threads.add(self._connection, thread)

    def save(self, state: SessionState) -> None:
        """Writes a session's state."""
        sessions.save(self._connection, state)

    def save_details(self, session_id: str, details: SessionDetails) -> None:
        """Writes the large part of a session."""
        sessions.save_details(self._connection, session_id, details)

    def remove(self, session_id: str) -> None:
        """Removes a session with all that belongs to it."""
        sessions.remove(self._connection, session_id)

    def sessions(self, query: SessionQuery) -> list[tuple[SessionState, SessionDetails]]:
        """A page of sessions."""
        return sessions.page(self._connection, query)

    def threads(self, session_id: str) -> list[ThreadState]:
        """A session's threads."""
        return threads.of_session(self._connection, session_id)

    def save_thread(self, thread: ThreadState) -> None:
        """Writes a thread."""
        threads.save(self._connection, thread)

    def append(self, session_id: str, entries: Sequence[LogEntry]) -> None:
        """Adds to the log."""
        events.append(self._connection, session_id, entries)

    def log(self, session_id: str, query: LogQuery) -> tuple[list[event_pb2.Event], bool]:
        """A slice of the log."""
        return events.page(self._connection, session_id, query)

    def logged(self, session_id: str, event_ids: Collection[str]) -> set[str]:
        """Those of the ids that are in the log."""
        return events.ids(self._connection, session_id, event_ids)

    def find(self, session_id: str, event_ids: Collection[str]) -> dict[str, event_pb2.Event]:
        """Events by id."""
        found = events.find(self._connection, session_id, event_ids)
        if len(found) < len(event_ids):
            found |= inbox.find(self._connection, session_id, event_ids)
        return found

    def enqueue(self, session_id: str, entries: Sequence[InboxEntry]) -> None:
        """Adds to the inbox."""
        inbox.enqueue(self._connection, session_id, entries)

    def waiting(
        self, session_id: str, kinds: Collection[InputClass], limit: int
    ) -> list[InboxEntry]:
        """The oldest events that wait."""
        return inbox.waiting(self._connection, session_id, kinds, limit)

    def take(self, session_id: str, taken: Sequence[tuple[int, int]]) -> None:
        """Marks inbox positions as taken."""
        inbox.take(self._connection, session_id, taken)

    def inbox(self, session_id: str, query: InboxQuery) -> tuple[list[InboxEntry], bool]:
        """A slice of the inbox."""
        return inbox.page(self._connection, session_id, query)

    def calls(self, session_id: str, call_ids: Collection[str]) -> dict[str, Call]:
        """Tool calls by id."""
        return calls.get(self._connection, session_id, call_ids) if call_ids else {}

    def open_calls(self, session_id: str, new: Sequence[Call]) -> None:
        """Adds calls."""
        calls.add(self._connection, session_id, new)

    def save_calls(self, session_id: str, changed: Sequence[Call]) -> None:
        """Writes the state of calls."""
        calls.save(self._connection, session_id, changed)

    def needs(self, limit: int) -> list[Need]:
        """Sessions that need a brain and have none."""
        return sessions.needs(self._connection, self._now, limit)

    def request_release(self, ref: SessionRef, *, purge: bool) -> None:
        """Notes that a session's hand must go."""
        releases.add(self._connection, ref, self._now, purge=purge)

    def due_releases(self, limit: int) -> list[HandRelease]:
        """Releases whose time has come."""
        return releases.due(self._connection, self._now, limit)

    def finish_release(self, release_id: int) -> None:
        """Strikes a release off the list."""
        releases.finish(self._connection, release_id)

    def postpone_release(self, release_id: int, delay_micros: int) -> None:
        """Has a failed release tried again later."""
        releases.postpone(self._connection, release_id, self._now + delay_micros)
