"""What outlives every process: the sessions' tables, the hands' journal, the effects of tools.

A commit takes time in three steps: on its way, done, and told. A process that dies between the
second and the third leaves a commit that nobody was told of.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_pb2 import SessionAgent
from drover.environment.v1.environment_pb2 import EnvironmentConfig
from drover.event.v1.event_pb2 import Event
from services.session.domain.ports import UNKNOWN
from tests.doubles.hands_journal import MemoryJournal
from tests.doubles.session_checkpoints import MemoryCheckpointStore
from tests.doubles.session_store import MemoryStore, MemoryTransaction, _in_slice, _within
from tests.simulation.loop import Life

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from random import Random

    from services.hands.backends.port import Volume
    from services.session.domain.session import SessionDetails, ThreadState
    from tests.simulation.loop import SimLoop
    from tests.simulation.trace import Trace


@lru_cache(maxsize=8192)
def parsed(body: bytes) -> Event:
    """An event of a log, to be looked at only."""
    return Event.FromString(body)


class Transaction(MemoryTransaction):
    """As its parent, without taking the whole log apart for every question."""

    def _events(self, session_id: str) -> list[Event]:
        return [parsed(body) for _, body in self._kept(session_id).log]

    def details(self, session_id: str) -> SessionDetails:
        return _copied(self._kept(session_id).details)

    def save_details(self, session_id: str, details: SessionDetails) -> None:
        self._kept(session_id).details = _copied(details)

    def threads(self, session_id: str) -> list[ThreadState]:
        kept = self._kept(session_id).threads.values()
        return [replace(one, activity=replace(one.activity)) for one in kept]

    def save_thread(self, thread: ThreadState) -> None:
        copied = replace(thread, activity=replace(thread.activity))
        self._kept(thread.session_id).threads[thread.id] = copied

    def append(self, session_id: str, entries: Any) -> None:
        log = self._kept(session_id).log
        for entry in entries:
            assert entry.event.seq == len(log) + 1, "positions are dense"
            log.append((entry.type, entry.event.SerializeToString()))

    def log(self, session_id: str, query: Any) -> Any:
        found = [
            body
            for event_type, body in self._kept(session_id).log[query.after : query.upto]
            if _in_slice(parsed(body), event_type, query)
        ]
        if query.descending:
            found.reverse()
        kept, more = _within(found, len, query)
        return [Event.FromString(body) for body in kept], more


def _copied(details: SessionDetails) -> SessionDetails:
    """Nobody changes a message of it in place, but the view of it is handed on."""
    agent, environment = SessionAgent(), EnvironmentConfig()
    agent.CopyFrom(details.agent)
    environment.CopyFrom(details.environment)
    metadata = dict(details.metadata)
    return replace(details, agent=agent, environment=environment, metadata=metadata)


class Tables(MemoryStore):
    """The session service's database. `watchers` look at every commit."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.watchers: list[Callable[[Any, Any], None]] = []
        self.commits = 0

    def run(self, fn: Any, *, keep: bool = True) -> Any:
        tables = self._tables.copy() if keep else self._tables
        now = int(self._clock.now().timestamp() * 1_000_000)
        result = fn(Transaction(tables, now, self._ids))
        if keep:
            before, self._tables = self._tables, tables
            self.commits += 1
            for watcher in self.watchers:
                watcher(before, tables)
        return result

    @property
    def sessions(self) -> dict[str, Any]:
        """Sessions as they are kept."""
        return self._tables.sessions


class Disk:
    """All that is durable, and the trouble that it may have."""

    def __init__(self, loop: SimLoop, rng: Random, trace: Trace) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.life = Life("disk")
        self.tables = Tables(loop)
        self.checkpoints = MemoryCheckpointStore(self.tables)
        self.journal = MemoryJournal()
        self.volumes: dict[str, Volume] = {}
        self.effects: Counter[str] = Counter()
        self.down_until = 0.0
        # Whether a commit may be done and reported as failed, as over a connection that broke.
        self.may_lie = False

    @property
    def down(self) -> bool:
        return self.loop.time() < self.down_until

    def delay(self) -> float:
        draw = self.rng.random()
        return 0.0002 + (0.05 * draw if draw > 0.97 else 0.001 * draw)

    def refusal(self) -> DroverError:
        return DroverError(Reason.UNAVAILABLE, "the database does not answer", retry_after=0.5)


class Store:
    """The `SessionStore` of one run of the session service: writes share commits, in order."""

    def __init__(self, disk: Disk, life: Life) -> None:
        self._disk = disk
        self._life = life
        self._waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._busy = False
        self.acknowledge_early = False

    async def read(self, fn: Any) -> Any:
        await self._step()
        if self._disk.down:
            raise self._disk.refusal()
        result = self._disk.tables.run(fn, keep=False)
        await self._step()
        return result

    async def write(self, fn: Any, *, about: Any = UNKNOWN) -> Any:
        return await self.submit(fn, about=about)

    def submit(self, fn: Any, *, about: Any = UNKNOWN) -> asyncio.Future[Any]:
        future = self._disk.loop.create_future()
        self._waiting.append((fn, future))
        if not self._busy:
            self._busy = True
            self._later(self._send)
        return future

    async def _step(self) -> None:
        done = self._disk.loop.create_future()
        self._later(_wake, done)
        await done

    def _later(self, callback: Any, *args: Any, life: Life | None = None) -> None:
        context = (life or self._life).context()
        loop = self._disk.loop
        loop.call_later(self._disk.delay(), callback, *args, context=context)

    def _send(self) -> None:
        """Still this process's: what it has not sent dies with it."""
        group = list(self._waiting)
        self._waiting.clear()
        if self.acknowledge_early:
            self._pretend(group)
        else:
            self._later(self._commit, group, life=self._disk.life)

    def _commit(self, group: list[Any]) -> None:
        """In the database, whatever becomes of the process that asked."""
        disk = self._disk
        if disk.down:
            results = [(future, None, disk.refusal()) for _, future in group]
        else:
            results = [(future, *self._run(fn)) for fn, future in group if not future.cancelled()]
            if disk.may_lie and disk.rng.random() < 0.02:
                disk.trace.note("disk", "lie", len(results))
                results = [(future, None, disk.refusal()) for future, *_ in results]
        disk.trace.note("disk", "commit", len(results))
        self._later(self._tell, results)

    def _run(self, fn: Any) -> tuple[Any, Exception | None]:
        try:
            return self._disk.tables.run(fn), None
        except Exception as error:  # noqa: BLE001  # its caller's
            return None, error

    def _tell(self, results: list[Any]) -> None:
        for future, result, error in results:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._busy = bool(self._waiting)
        if self._busy:
            self._later(self._send)

    def _pretend(self, group: list[Any]) -> None:
        """What no store may do: answers from a copy, and commits later, if the process lives."""
        tables, kept = self._disk.tables, self._disk.tables._tables
        watchers, tables.watchers = tables.watchers, []
        results = [(future, *self._run(fn)) for fn, future in group if not future.cancelled()]
        changed, tables._tables, tables.watchers = tables._tables, kept, watchers
        self._tell(results)
        self._busy = True
        self._later(self._keep, kept, changed)

    def _keep(self, before: Any, changed: Any) -> None:
        tables = self._disk.tables
        tables._tables = changed
        for watcher in tables.watchers:
            watcher(before, changed)
        self._busy = bool(self._waiting)
        if self._busy:
            self._send()


class Delayed:
    """A durable double of a port, with a disk's delays and trouble."""

    def __init__(self, disk: Disk, life: Life, double: Any) -> None:
        self._disk = disk
        self._life = life
        self._double = double

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._double, name)

        async def call(*given: Any, **named: Any) -> Any:
            await self._step(self._life)
            if self._disk.down:
                raise self._disk.refusal()
            result = await method(*given, **named)
            await self._step(self._life)
            return result

        return call

    async def _step(self, life: Life) -> None:
        done = self._disk.loop.create_future()
        loop = self._disk.loop
        loop.call_later(self._disk.delay(), _wake, done, context=life.context())
        await done


def _wake(waiter: asyncio.Future[None]) -> None:
    """Whoever waits may have been cancelled."""
    if not waiter.done():
        waiter.set_result(None)
