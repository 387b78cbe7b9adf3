"""What the session's state machine plays on: each of the stores, step by step from plain code."""

from __future__ import annotations

import asyncio
import itertools

from sqlalchemy import update

from chassis.errors import DroverError, Reason
from services.session.domain.ports import UNKNOWN
from services.session.domain.session import MICROS
from services.session.store.schema import SCHEMA
from services.session.store.store import SqlSessionStore
from services.session.store.tables import sessions
from storage import open_database
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_world import ManualClock

UNKNOWN_OUTCOME = object()
"""Of a write whose caller went away before it was told."""


class InMemory(MemoryStore):
    """The store in memory."""

    def __init__(self):
        self.clock = ManualClock()
        super().__init__(self.clock)

    def at_once(self, writes, _about, *, crash):
        """Runs writes in a row; a crash comes before the last of them."""
        outcomes = [outcome_of(self.run, fn) for fn in (writes[:-1] if crash else writes)]
        return outcomes + [UNKNOWN_OUTCOME] * crash

    def pass_time(self, seconds):
        """Moves the time by which leases run out."""
        self.clock.move(seconds)


class Stored:
    """A database, and as many stores on it as it may have: each step is another one's.

    Transactions say what they are about, or do not, in turns.
    """

    def __init__(self, runner, url, replicas):
        self.clock = ManualClock()
        self._runner = runner
        self._url = url
        self._replicas = replicas
        self._turns = itertools.count()
        self._open = []
        self._reopen()

    def run(self, fn, *, keep=True):
        """Runs a transaction, to keep what it writes or to look."""
        turn = next(self._turns)
        _, store = self._open[turn % len(self._open)]
        return self._runner.run(store.write(fn) if keep else store.read(fn))

    def at_once(self, writes, about, *, crash):
        """Runs writes at the same time; a crash comes as soon as one of them was acknowledged."""
        return self._runner.run(self._at_once(writes, about, crash=crash))

    def pass_time(self, seconds):
        """Moves the time by which leases run out: theirs, where the clock is the database's."""
        self.clock.move(seconds)
        if self._url.startswith("postgresql"):
            earlier = update(sessions).values(
                lease_expires_at=sessions.c.lease_expires_at - seconds * MICROS
            )
            database, _ = self._open[0]
            self._runner.run(
                database.write(lambda connection: connection.execute(earlier).rowcount)
            )

    def close(self):
        """Closes the stores."""
        self._runner.run(self._close())

    async def _at_once(self, writes, about, *, crash):
        hints = itertools.cycle([about, UNKNOWN])
        stores = itertools.cycle([store for _, store in self._open])
        tasks = [
            asyncio.create_task(store.write(fn, about=hint))
            for fn, store, hint in zip(writes, stores, hints, strict=False)
        ]
        end = asyncio.FIRST_COMPLETED if crash else asyncio.ALL_COMPLETED
        await asyncio.wait(tasks, return_when=end)
        outcomes = [_outcome(task) if task.done() else UNKNOWN_OUTCOME for task in tasks]
        if crash:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close(crash=True)
            await self._opened()
        return outcomes

    def _reopen(self):
        self._runner.run(self._opened())

    async def _opened(self):
        for _ in range(self._replicas):
            database = await open_database(self._url, SCHEMA)
            self._open.append((database, SqlSessionStore(database, self.clock)))

    async def _close(self, *, crash=False):
        for database, store in self._open:
            if crash:
                database.write = _refuse  # what had not begun is lost
            await store.close()
            await database.close()
        self._open.clear()


async def _refuse(_fn):
    raise DroverError(Reason.UNAVAILABLE, "crashed")


def outcome_of(call, *arguments):
    """What a call answers, or the refusal that it raises."""
    try:
        return call(*arguments)
    except DroverError as error:
        return error


def _outcome(task):
    error = task.exception()
    if error is not None and not isinstance(error, DroverError):
        raise error
    return error or task.result()
