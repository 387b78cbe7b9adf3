"""Group commit: writes that wait at the same time share a transaction.

A commit costs an fsync, and on PostgreSQL each statement a round trip, whatever they carry. So the
transactions of a group are run one after the other, but look at what was locked and fetched for
all, and write to memory; then what they wrote is sent by one statement of each kind, one commit
makes it durable, and only then is any of them acknowledged.

What another replica holds is waited for in a transaction of its own, a session's writes in the
order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chassis.errors import DroverError, Reason
from services.session.store import requests
from services.session.store.engine import HeldElsewhereError
from services.session.store.transaction import SqlTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import Connection

    from services.session.domain.ports import About, Transaction
    from services.session.store.engine import Engine
    from services.session.store.unit import Unit
    from storage import Database

T = TypeVar("T")

# A commit shared by more gains nothing, and makes the first of them wait.
_MAX_GROUP: Final = 128
# Beyond this many waiting writes the process is overloaded and says so.
_MAX_WAITING: Final = 4096
# Connections that may wait for sessions which other replicas hold; the others are for what needs
# not wait.
_LANES: Final = 3
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
    def lanes(self) -> Collection[str]:
        """What no other write must have at the same time."""
        return requests.lanes(self.about)

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


def _nothing() -> None:
    """For whoever need not know."""


class GroupCommitter:
    """Runs writes in groups. While some wait for their commits the next one is run.

    What belongs together, a session's writes above all, is in one of them at a time.
    """

    def __init__(self, database: Database, engine: Engine) -> None:
        self._database = database
        self._engine = engine
        self._waiting: deque[_Write] = deque()
        self._lanes: dict[str, deque[_Write]] = {}
        self._free_lanes = asyncio.Semaphore(_LANES)
        self._in_flight: set[str] = set()
        self._places = asyncio.Semaphore(engine.parallel)
        self._collecting = False
        self._accepted = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def submit(self, fn: Callable[[Transaction], T], about: About) -> asyncio.Future[T]:
        """Has `fn` run in a group; see `SessionStore.submit`."""
        if self._closed:
            raise DroverError(Reason.UNAVAILABLE, "the database is closed")
        if self._accepted >= _MAX_WAITING:
            raise DroverError(Reason.RESOURCE_EXHAUSTED, "too many writes wait", retry_after=0.1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        write = _Write(fn, about, future, loop.time())
        self._accepted += 1
        self._waiting.append(write)
        self._look()
        return future

    async def close(self) -> None:
        """Finishes the accepted writes."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, work: Any) -> None:  # noqa: ANN401
        # Tasks of their own: a caller that is cancelled leaves no group half way.
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _look(self) -> None:
        """Sees to what waits, if nobody does."""
        if self._waiting and not self._collecting:
            self._collecting = True
            self._begin(self._collect())

    async def _collect(self) -> None:
        """Runs one group after the other: the next while those before it wait for their commits."""
        try:
            while self._waiting:
                await self._places.acquire()
                group = self._next()
                if not group:  # all of it is behind what is in flight
                    self._places.release()
                    return
                self._in_flight |= (lanes := {lane for write in group for lane in write.lanes})
                sent = asyncio.get_running_loop().create_future()
                self._begin(self._commit_group(group, lanes, sent))
                await sent
        finally:
            self._collecting = False

    async def _commit_group(
        self, group: Sequence[_Write], lanes: set[str], sent: asyncio.Future[None]
    ) -> None:
        try:
            await self._commit(group, sent=partial(_resolve, sent))
        finally:
            self._in_flight -= lanes
            self._places.release()
            _resolve(sent)
            self._look()

    def _next(self) -> list[_Write]:
        """The writes of the next group: all that wait, but for those that others are ahead of."""
        group: list[_Write] = []
        busy = set(self._in_flight)
        behind: list[_Write] = []
        while self._waiting and len(group) < _MAX_GROUP:
            write = self._waiting.popleft()
            lane = next((self._lanes[one] for one in write.lanes if one in self._lanes), None)
            if lane is not None:
                lane.append(write)
            elif busy and not busy.isdisjoint(write.lanes):
                behind.append(write)
                busy.update(write.lanes)
            else:
                group.append(write)
        self._waiting.extendleft(reversed(behind))
        return group

    async def _commit_lane(self, name: str) -> None:
        """Runs the writes of a lane, a session's or a request's, for as long as there are any."""
        lane = self._lanes[name]
        async with self._free_lanes:
            while lane:
                group = [lane.popleft() for _ in range(min(len(lane), _MAX_GROUP))]
                await self._commit(group, wait=True)
        del self._lanes[name]

    async def _commit(
        self,
        group: Sequence[_Write],
        *,
        wait: bool = False,
        hopeful: bool = True,
        sent: Callable[[], None] = _nothing,
    ) -> None:
        run = partial(_run, self._engine, group, wait=wait, hopeful=hopeful, sent=sent)
        try:
            await self._database.write(run)
        except Exception as failure:  # noqa: BLE001  # its caller is told
            everyones = isinstance(failure, DroverError) and failure.reason in _EVERYONES
            if hopeful and not everyones:
                await self._commit(group, wait=wait, hopeful=False)
                return
            if len(group) > 1 and not everyones:
                # The fault of one of them: each for itself, so that it fails alone.
                for write in group:
                    await self._commit([write], wait=wait, hopeful=False)
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


def _run(
    engine: Engine,
    group: Sequence[_Write],
    connection: Connection,
    *,
    wait: bool,
    hopeful: bool,
    sent: Callable[[], None],
) -> None:
    """Runs a group in the transaction of `connection`. It may be run again.

    Calls `sent` once there is nothing left to do but to commit.
    """
    abouts = [write.about for write in group]
    unit, held = engine.writing(connection, abouts, wait=wait, hopeful=hopeful)
    for write in group:
        write.result = write.error = write.held = None
        if write.future.cancelled():
            continue
        if held:
            write.held = next((one for one in write.lanes if one in held), None)
        if write.held is None:
            write.run(unit)
    unit.flush()
    if engine.parallel > 1:
        sent()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
