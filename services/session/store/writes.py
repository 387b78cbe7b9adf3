"""What transactions have written and the database has yet to be told, all of a kind at once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from services.session.store import (
    calls,
    events,
    files,
    inbox,
    memory_stores,
    releases,
    sessions,
    threads,
    work,
)
from storage import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sqlalchemy import Connection

    from services.session.domain.ports import Call
    from services.session.store.events import EventRow
    from services.session.store.files import FileReleaseRow
    from services.session.store.inbox import InboxRow
    from services.session.store.memory_stores import MemoryStoreRow
    from services.session.store.pairs import Pair
    from services.session.store.releases import Release
    from services.session.store.sessions import SessionRow
    from services.session.store.threads import ThreadRow
    from services.session.store.work import WorkRow
    from storage.answers import Kept

    Send = Callable[[Connection, Any], None]


@dataclass(slots=True)
class Writes:
    """Rows on their way to the database, by what they are and the session that they belong to."""

    new_sessions: dict[str, SessionRow] = field(default_factory=dict)
    sessions: dict[str, SessionRow] = field(default_factory=dict)
    new_details: dict[str, SessionRow] = field(default_factory=dict)
    details: dict[str, SessionRow] = field(default_factory=dict)
    new_stores: list[MemoryStoreRow] = field(default_factory=list)
    new_threads: list[ThreadRow] = field(default_factory=list)
    threads: dict[str, ThreadRow] = field(default_factory=dict)
    events: dict[str, list[EventRow]] = field(default_factory=dict)
    inbox: dict[str, list[InboxRow]] = field(default_factory=dict)
    taken: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)
    new_calls: dict[Pair, Call] = field(default_factory=dict)
    calls: dict[Pair, Call] = field(default_factory=dict)
    releases: list[Release] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    postponed: list[tuple[int, int]] = field(default_factory=list)
    file_releases: list[FileReleaseRow] = field(default_factory=list)
    answers: dict[bytes, Kept] = field(default_factory=dict)
    new_work: dict[str, WorkRow] = field(default_factory=dict)
    work: dict[str, WorkRow] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def save(self, row: SessionRow) -> None:
        """Notes a state: of a session that is new here it is the first one."""
        rows = self.new_sessions if row[0] in self.new_sessions else self.sessions
        rows[row[0]] = row

    def save_call(self, pair: Pair, call: Call) -> None:
        """Notes how far a call is: of one that is new here it is the beginning."""
        (self.new_calls if pair in self.new_calls else self.calls)[pair] = call

    def save_work(self, row: WorkRow) -> None:
        """Notes an item: one that is new here is added as it is now."""
        (self.new_work if row[0] in self.new_work else self.work)[row[0]] = row

    def absorb(self, later: Writes) -> None:
        """Adds what a later transaction has written."""
        self.new_sessions |= later.new_sessions
        for row in later.sessions.values():
            self.save(row)
        self.new_details |= later.new_details
        self.details |= later.details
        self.new_stores += later.new_stores
        self.new_threads += later.new_threads
        self.threads |= later.threads
        _extend(self.events, later.events)
        _extend(self.inbox, later.inbox)
        _extend(self.taken, later.taken)
        self.new_calls |= later.new_calls
        for pair, call in later.calls.items():
            self.save_call(pair, call)
        self.releases += later.releases
        self.finished += later.finished
        self.postponed += later.postponed
        self.file_releases += later.file_releases
        self.answers |= later.answers
        self.new_work |= later.new_work
        for row in later.work.values():
            self.save_work(row)

    def flush(self, connection: Connection) -> None:
        """Sends everything. What others refer to goes first."""
        each: tuple[tuple[Send, Collection[Any]], ...] = (
            (sessions.add, self.new_sessions.values()),
            (sessions.add_details, self.new_details.values()),
            (memory_stores.add, self.new_stores),
            (threads.add, self.new_threads),
            (sessions.save, self.sessions.values()),
            (sessions.save_details, self.details.values()),
            (threads.save, self.threads.values()),
            (events.add, _chained(self.events)),
            (inbox.add, _chained(self.inbox)),
            (inbox.take, _chained(self.taken)),
            (calls.add, self.new_calls.items()),
            (calls.save, self.calls.items()),
            (releases.add, self.releases),
            (releases.finish, self.finished),
            (releases.postpone, self.postponed),
            (files.add, self.file_releases),
            (answers.keep, self.answers.values()),
            (work.save, self.work.values()),
            (work.add, self.new_work.values()),
        )
        for send, rows in each:
            if rows:
                send(connection, rows)
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        for name in self.__slots__:
            getattr(self, name).clear()


def _extend(lists: dict[str, list[Any]], more: dict[str, list[Any]]) -> None:
    for session_id, rows in more.items():
        lists.setdefault(session_id, []).extend(rows)


def _chained(lists: dict[str, list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(lists.values()))
