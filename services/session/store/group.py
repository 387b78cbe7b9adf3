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
    from collections.abc import Callable, Sequence

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

    def __init__(self, database: Database, engine: Engine) -> None:
        self._database = database
        self._engine = engine
        self._waiting: deque[_Write] = deque()
        self._lanes: dict[str, deque[_Write]] = {}
        self._free_lanes = asyncio.Semaphore(_LANES)
        self._accepted = 0
        self._committing = False
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
        self._enqueue(write)
        return future

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

    async def _commit(self, group: Sequence[_Write], *, wait: bool, hopeful: bool = True) -> None:
        run = partial(_run, self._engine, group, wait=wait, hopeful=hopeful)
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


def _next(waiting: deque[_Write]) -> list[_Write]:
    group: list[_Write] = []
    while waiting and len(group) < _MAX_GROUP:
        group.append(waiting.popleft())
    return group


def _run(
    engine: Engine,
    group: Sequence[_Write],
    connection: Connection,
    *,
    wait: bool,
    hopeful: bool,
) -> None:
    """Runs a group in the transaction of `connection`. It may be run again."""
    abouts = [write.about for write in group]
    unit, held = engine.writing(connection, abouts, wait=wait, hopeful=hopeful)
    for write in group:
        write.result = write.error = write.held = None
        if write.future.cancelled():
            continue
        if held:
            write.held = next((one for one in requests.lanes(write.about) if one in held), None)
        if write.held is None:
            write.run(unit)
    unit.flush()
