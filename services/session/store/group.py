"""Group commit on PostgreSQL: what waits at the same time shares a transaction.

A commit and each of its statements cost a round trip, whatever they carry. So the sessions of a
group are locked by one statement, what its transactions will look at is fetched by one of each
kind, and what they wrote is sent by one of each kind; then one commit makes it durable, and only
then is any of them acknowledged.

Sessions are locked without waiting, or two replicas whose groups have sessions in common would
wait for one another. What another replica holds is waited for in a transaction of its own, a
session's writes in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chassis.errors import DroverError, Reason
from services.session.store import calls, events, inbox, requests, sessions
from services.session.store.requests import HeldElsewhereError
from services.session.store.transaction import SqlTransaction
from services.session.store.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import Connection

    from services.session.domain.ports import About, Transaction
    from services.session.store.pairs import Pair
    from services.session.store.sessions import SessionRow
    from storage import Database

T = TypeVar("T")

# A commit shared by more gains nothing, and makes the first of them wait.
_MAX_GROUP: Final = 128
# Beyond this many waiting writes the process is overloaded and says so.
_MAX_WAITING: Final = 4096
# Connections that may wait for sessions which other replicas hold; the others are for what needs
# not wait.
_LANES: Final = 3
# Of what waits in an inbox, so much is fetched ahead: a brain takes one message at a time.
_WINDOW: Final = 4
# What has waited so long when a group fails for want of a database has waited long enough.
_PATIENCE: Final = 1.0

# Failures of the database itself, not of what it was asked.
_EVERYONES: Final = frozenset({Reason.UNAVAILABLE, Reason.RESOURCE_EXHAUSTED})


@dataclass(slots=True, eq=False)
class _Write:
    """One accepted write, its caller's future and, once run, what came of it."""

    fn: Callable[[Transaction], Any]
    about: About
    future: asyncio.Future[Any]
    since: float
    result: Any = None
    error: Exception | None = None
    held: str | None = None

    @property
    def session_id(self) -> str | None:
        return self.about.ref.session_id if self.about.ref is not None else None

    def run(self, unit: Unit) -> None:
        """Runs it as the next transaction of a unit. Raises what concerns the whole unit."""
        tx = SqlTransaction(unit)
        try:
            self.result = self.fn(tx)
        except HeldElsewhereError as held:
            self.held = held.lane
        except DroverError as refusal:
            self.error = refusal
        else:
            tx.keep()
            return
        tx.undo()

    def conclude(self) -> None:
        """Tells its caller what came of it."""
        if self.future.done():  # its caller was cancelled
            return
        if self.error is None:
            self.future.set_result(self.result)
        elif isinstance(self.error, StopIteration):  # which a future refuses to carry
            self.future.set_exception(RuntimeError(repr(self.error)))
        else:
            self.future.set_exception(self.error)


class GroupCommitter:
    """Runs writes in groups, one group after the other; the next one collects meanwhile."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[_Write] = deque()
        self._lanes: dict[str, deque[_Write]] = {}
        self._free_lanes = asyncio.Semaphore(_LANES)
        self._accepted = 0
        self._committing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def write(self, fn: Callable[[Transaction], T], about: About) -> T:
        """Runs `fn` in a group; see `SessionStore.write`."""
        if self._closed:
            raise DroverError(Reason.UNAVAILABLE, "the database is closed")
        if self._accepted >= _MAX_WAITING:
            raise DroverError(Reason.RESOURCE_EXHAUSTED, "too many writes wait", retry_after=0.1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        write = _Write(fn, about, future, loop.time())
        self._accepted += 1
        self._enqueue(write)
        return await future

    async def close(self) -> None:
        """Finishes the accepted writes."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _enqueue(self, write: _Write) -> None:
        lane = self._lanes.get(write.session_id or "")
        if lane is not None:  # behind those of its session
            lane.append(write)
            return
        self._waiting.append(write)
        if not self._committing:
            self._committing = True
            self._begin(self._commit_all())

    def _begin(self, work: Any) -> None:  # noqa: ANN401
        # Tasks of their own: a caller that is cancelled leaves no group half way.
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit_all(self) -> None:
        try:
            while group := _next(self._waiting):
                await self._commit(group, wait=False)
        finally:
            self._committing = False

    async def _commit_lane(self, name: str) -> None:
        """Runs the writes of a lane, a session's or a request's, for as long as there are any."""
        lane = self._lanes[name]
        async with self._free_lanes:
            while group := _next(lane):
                await self._commit(group, wait=True)
        del self._lanes[name]

    async def _commit(self, group: Sequence[_Write], *, wait: bool) -> None:
        try:
            await self._database.write(partial(_run, group, wait=wait))
        except Exception as failure:  # noqa: BLE001  # its caller is told
            everyones = isinstance(failure, DroverError) and failure.reason in _EVERYONES
            if len(group) > 1 and not everyones:
                # The fault of one of them: each for itself, so that it fails alone.
                for write in group:
                    await self._commit([write], wait=wait)
                return
            for write in group:
                write.error, write.held = failure, None
            if everyones:
                self._give_up(failure)
        for write in group:
            self._conclude(write)

    def _conclude(self, write: _Write) -> None:
        if write.held is None:
            self._accepted -= 1
            write.conclude()
            return
        lane = self._lanes.get(write.held)
        if lane is None:
            lane = self._lanes[write.held] = deque()
            self._begin(self._commit_lane(write.held))
        lane.append(write)

    def _give_up(self, failure: Exception) -> None:
        """Refuses what has waited for a database that does not answer, and still would."""
        limit = asyncio.get_running_loop().time() - _PATIENCE
        while self._waiting and self._waiting[0].since < limit:
            write = self._waiting.popleft()
            write.error = failure
            self._conclude(write)


def _next(waiting: deque[_Write]) -> list[_Write]:
    group: list[_Write] = []
    while waiting and len(group) < _MAX_GROUP:
        group.append(waiting.popleft())
    return group


def _run(group: Sequence[_Write], connection: Connection, *, wait: bool) -> None:
    """Runs a group in the transaction of `connection`. It may be run again."""
    unit = Unit(
        connection,
        _locked if wait else _locked_if_free,
        sessions.time,
        reserve=requests.wait_for if wait else requests.take_if_free,
        shared=True,
    )
    held = _prepare(unit, [write.about for write in group], wait=wait)
    for write in group:
        write.result = write.error = write.held = None
        if write.future.cancelled():
            continue
        write.held = next((one for one in requests.lanes(write.about) if one in held), None)
        if write.held is None:
            write.run(unit)
    unit.flush()


def _locked(unit: Unit, session_id: str) -> SessionRow | None:
    """A session's row, once nobody else holds it."""
    rows, time = sessions.lock(unit.connection, [session_id], wait=True)
    unit.time = unit.time or time
    return rows.get(session_id)


def _locked_if_free(unit: Unit, session_id: str) -> SessionRow | None:
    """A session's row. Raises `HeldElsewhereError` when another holds it."""
    rows, time = sessions.lock(unit.connection, [session_id], wait=False)
    unit.time = unit.time or time
    if not rows and sessions.existing(unit.connection, [session_id]):
        raise HeldElsewhereError(session_id)
    return rows.get(session_id)


def _prepare(unit: Unit, abouts: Sequence[About], *, wait: bool) -> Collection[str]:
    """Locks and fetches what was announced; answers the lanes of what others hold."""
    elsewhere = requests.reserve(unit, abouts, wait=wait)
    wanted = {about.ref.session_id for about in abouts if about.ref is not None}
    if wanted:
        elsewhere |= _prepare_sessions(unit, abouts, wanted, wait=wait)
    ours = (one for one in abouts if elsewhere.isdisjoint(requests.lanes(one)))
    requests.fetch(unit, [about.key for about in ours if about.key])
    return elsewhere


def _prepare_sessions(
    unit: Unit, abouts: Sequence[About], wanted: set[str], *, wait: bool
) -> set[str]:
    """As `_prepare`, of the sessions and what is in them."""
    connection, known = unit.connection, unit.known
    rows, unit.time = sessions.lock(connection, wanted, wait=wait)
    missing = wanted - rows.keys()
    held = sessions.existing(connection, missing) if missing and not wait else set[str]()
    known.sessions.update(rows)
    known.sessions.update(dict.fromkeys(missing - held))
    ours = [about for about in abouts if about.ref is not None and about.ref.session_id in rows]
    busy = {one for one, row in rows.items() if sessions.restored(row).waiting.total}
    found = _pairs(ours, lambda about: about.found)
    logged = _pairs(ours, lambda about: about.logged)
    # Behind the locks, so that nothing of it changes before the commit.
    if pairs := logged | found:
        known.events.update(_present(pairs, events.id_pairs(connection, pairs)))
    # Where something waits, a brain must not give its id to another event.
    if pairs := found | {pair for pair in logged if pair[0] in busy}:
        known.queued_ids.update(_present(pairs, inbox.id_pairs(connection, pairs)))
    if pairs := _pairs(ours, lambda about: about.calls):
        known.calls.update(dict.fromkeys(pairs) | calls.get_pairs(connection, pairs))
    takers = {about.ref.session_id for about in ours if about.waiting and about.ref is not None}
    _look_at_inboxes(unit, takers & busy)
    return held


def _look_at_inboxes(unit: Unit, session_ids: Collection[str]) -> None:
    if session_ids:
        for session_id, oldest in inbox.first(unit.connection, session_ids, _WINDOW).items():
            unit.known.windows[session_id] = oldest, len(oldest) < _WINDOW


def _pairs(abouts: Sequence[About], ids: Callable[[About], Collection[str]]) -> set[Pair]:
    return {
        (about.ref.session_id, one)
        for about in abouts
        if about.ref is not None
        for one in ids(about)
    }


def _present(pairs: Collection[Pair], found: Collection[Pair]) -> dict[Pair, bool]:
    return {pair: pair in found for pair in pairs}
