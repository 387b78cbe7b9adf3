"""Statements that make a session from the records of another: see `domain.copies`.

A session that is being made lies in a workspace of that name which nobody has, and its row's time
of change says when it was last worked on. One that is being removed lies there too, without a time.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import bindparam, delete, func, literal_column, select, update
from sqlalchemy.dialects import postgresql, sqlite

from services.session.domain.copies import being_made, exists_already, given_up
from services.session.domain.event import CallKind
from services.session.domain.file_ports import too_late
from services.session.domain.ports import Call, CallState
from services.session.store import (
    calls,
    events,
    files,
    inbox,
    memory_stores,
    sessions,
    stretches,
    threads,
    work,
)
from services.session.store import tables as t
from services.session.store.sessions import AT_ONCE, NOBODYS
from storage import answers
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import Connection, Table

    from chassis.clock import Clock
    from drover.api.v1.request_key_pb2 import RequestKey
    from services.session.domain.copies import CopyTransaction, Stretch
    from services.session.domain.ports import InboxEntry, LogEntry
    from services.session.domain.session import (
        SessionDetails,
        SessionRef,
        SessionState,
        ThreadState,
    )
    from services.session.domain.work import WorkItem
    from storage import Database

T = TypeVar("T")

_of, _ours = t.sessions.c, t.sessions.c.id == bindparam("session")
_nobodys = _of.workspace_id == NOBODYS
_TOUCH = Prepared(
    update(t.sessions).where(_ours, _nobodys).values(updated_at=bindparam("at")).returning(_of.id)
)
_PUBLISH = Prepared(
    update(t.sessions)
    .where(_ours, _nobodys)
    .values({column: bindparam(f"new_{column.name}") for column in list(t.sessions.c)[1:]})
    .returning(_of.id)
)
_IS_NOBODYS = Prepared(select(_of.id).where(_ours, _nobodys))
_REMOVE = Prepared(delete(t.sessions).where(_ours, _nobodys))
_ABANDONED = Prepared(
    select(_of.id).where(_nobodys, _of.updated_at < bindparam("before")).limit(100)
)
_LAST = Prepared(
    select(func.max(t.events.c.seq)).where(t.events.c.session_id == bindparam("session"))
)
_CUT = Prepared(
    delete(t.events).where(
        t.events.c.session_id == bindparam("session"), t.events.c.seq > bindparam("after")
    )
)
_UNFINISHED = Prepared(
    select(t.calls.c.call_id, t.calls.c.kind, t.calls.c.state, t.events.c.type)
    .join(
        t.events,
        (t.events.c.session_id == t.calls.c.session_id)
        & (t.events.c.event_id == t.calls.c.call_id),
    )
    .where(
        t.calls.c.session_id == bindparam("session"),
        t.calls.c.state != literal_column(str(int(CallState.CLOSED))),
    )
    .order_by(t.events.c.seq)
)


class SqlCopyStore:
    """Steps in the database of the sessions, each a transaction that is shared with nothing else.

    `clock` is SQLite's; PostgreSQL has its own.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def step(self, fn: Callable[[CopyTransaction], T], /) -> T:
        """Runs `fn` in a transaction and returns once it is durable."""
        return await self._database.write(lambda connection: fn(self._transaction(connection)))

    def _transaction(self, connection: Connection) -> _Copying:
        if connection.dialect.name == "sqlite":
            return _Copying(connection, int(self._clock.now().timestamp() * 1_000_000))
        return _Copying(connection, sessions.time(connection))


class _Copying:
    """One step on one connection: see `domain.copies.CopyTransaction`."""

    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self._now = now

    def now(self) -> int:
        """The database's time."""
        return self._now

    def begin(
        self, state: SessionState, details: SessionDetails, new: Sequence[ThreadState]
    ) -> None:
        """Adds a session that nobody sees."""
        hidden = state.copy()
        hidden.workspace_id, hidden.updated_at = NOBODYS, self._now
        self._insert(t.sessions, sessions.stored(hidden), f"session {state.id}")
        sessions.add_details(self._connection, [sessions.stored_details(state.id, details)])
        if stores := memory_stores.stored(state.id, details):
            memory_stores.add(self._connection, stores)
        for thread in new:
            self._insert(t.threads, threads.stored(thread), f"thread {thread.id}")

    def _insert(self, table: Table, row: Sequence[Any], what: str) -> None:
        """Raises CONFLICT for an id that is taken, be it by someone who has yet to commit."""
        statement = _insert_new(table, self._connection.dialect.name)
        names = (column.name for column in table.c)
        if not statement.execute(self._connection, dict(zip(names, row, strict=True))):
            unfinished = _IS_NOBODYS.execute(self._connection, {"session": row[0]})
            raise being_made(what) if unfinished else exists_already(what)

    def logged(self, session_id: str, event_ids: Collection[str]) -> set[str]:
        """Those of the ids that are in the log."""
        return events.ids(self._connection, session_id, event_ids) if event_ids else set()

    def calls(self, session_id: str, call_ids: Collection[str]) -> dict[str, Call]:
        """Tool calls by id."""
        return calls.get(self._connection, session_id, call_ids) if call_ids else {}

    def append(self, session_id: str, entries: Sequence[LogEntry]) -> None:
        """Adds to the log."""
        self._touch(session_id)
        events.add(self._connection, [events.stored(session_id, entry) for entry in entries])

    def enqueue(self, session_id: str, entries: Sequence[InboxEntry]) -> None:
        """Adds to the inbox."""
        self._touch(session_id)
        inbox.add(self._connection, [inbox.stored(session_id, entry) for entry in entries])

    def open_calls(self, session_id: str, new: Sequence[Call]) -> None:
        """Adds calls."""
        calls.add(self._connection, [((session_id, call.id), call) for call in new])

    def save_calls(self, session_id: str, changed: Sequence[Call]) -> None:
        """Writes the state of calls."""
        calls.save(self._connection, [((session_id, call.id), call) for call in changed])

    def copy(self, stretch: Stretch) -> int:
        """Copies a piece of another log."""
        self._touch(stretch.target_id)
        return stretches.copy(self._connection, stretch)

    def unfinished_calls(self, session_id: str) -> list[tuple[Call, str]]:
        """Calls without a result, in the order of the events that opened them."""
        rows = _UNFINISHED.execute(self._connection, {"session": session_id})
        return [(Call(row[0], CallKind(row[1]), CallState(row[2])), row[3]) for row in rows]

    def answer(self, key: RequestKey) -> bytes | None:
        """What a request was answered before."""
        answers.lock(self._connection, [key])
        return answers.decide(answers.load(self._connection, key), key, self._now)

    def keep_answer(self, key: RequestKey, answer: bytes, session_id: str) -> None:
        """Keeps an answer."""
        answers.keep(self._connection, [answers.Kept.of(key, self._now, answer, session_id)])

    def add_work(self, item: WorkItem) -> None:
        """Adds a work item."""
        work.add(self._connection, [work.stored(item)])

    def keep_files(self, ref: SessionRef, file_id: str = "") -> None:
        """Withdraws a deletion that was foreseen."""
        if not files.withdraw(self._connection, ref, file_id):
            raise too_late(ref)

    def publish(self, state: SessionState) -> None:
        """Shows the session to its workspace."""
        names = (f"new_{column.name}" for column in list(t.sessions.c)[1:])
        values = dict(zip(names, sessions.stored(state)[1:], strict=True))
        if not _PUBLISH.execute(self._connection, {"session": state.id} | values):
            raise given_up(state.id)

    def discard(self, session_id: str) -> bool:
        """Removes a piece of a session that nobody sees."""
        if not _IS_NOBODYS.execute(self._connection, {"session": session_id}):
            return True
        last = _LAST.execute(self._connection, {"session": session_id})[0][0] or 0
        if last > AT_ONCE:
            cut = {"session": session_id, "after": last - AT_ONCE}
            _CUT.execute_each(self._connection, [cut])
            return False
        _REMOVE.execute_each(self._connection, [{"session": session_id}])
        return True

    def abandoned(self, before: int) -> list[str]:
        """Sessions that nobody works on."""
        return [row[0] for row in _ABANDONED.execute(self._connection, {"before": before})]

    def _touch(self, session_id: str) -> None:
        if not _TOUCH.execute(self._connection, {"session": session_id, "at": self._now}):
            raise given_up(session_id)


@cache
def _insert_new(table: Table, dialect: str) -> Prepared:
    make: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    values: Any = {column: bindparam(column.name) for column in table.c}
    return Prepared(make(table).values(values).on_conflict_do_nothing().returning(table.c.id))
