"""Waking brains: every session that needs one and has no live lease gets one (ARCHITECTURE §4)."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from services.session.domain import holding
from services.session.domain.lease import LEASE_MICROS
from services.session.domain.session import MICROS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from services.session.commits import Commits
    from services.session.domain.news import News
    from services.session.domain.ports import Need, Peek, SessionStore
    from services.session.domain.session import SessionRef

SWEEP_SECONDS: Final = 1.0
_SWEEP_LIMIT: Final = 1000
_FIRST_BACKOFF: Final = 0.05
_LONGEST_BACKOFF: Final = 1.0
_LONGEST_AFTER_FAULTS: Final = 10.0
"""Where no brain can work on a session that it was given: what it holds is more than they bear."""
_OPEN_SECONDS: Final = LEASE_MICROS / MICROS
"""How long a woken brain may take to open its lease."""
_REMEMBERED: Final = 10_000
_REST: Final = 0.1
"""For how long a brain that is full or gone is not asked again, be it for another session."""
_REJOIN_SECONDS: Final = 0.15
"""How long a brain whose lease stream broke has to open it again: it tries after 0.02 s, and a few
times more. A brain that is fenced off all the same loses an unfinished request, and no more."""

# Another brain is at work, or this one still is: its lease says when it is another's turn.
_LEFT_ALONE: Final = frozenset({Reason.LEASE_HELD, Reason.DEADLINE_EXCEEDED})

_NOT_NOW: Final = frozenset({Reason.RESOURCE_EXHAUSTED, Reason.UNAVAILABLE})

_log = structlog.get_logger("session.dispatch")


class Brain(Protocol):
    """A place where brains run."""

    @property
    def address(self) -> str:
        """Names it."""
        ...

    async def wake(self, ref: SessionRef) -> None:
        """Has it be the session's brain; returns when it no longer is. Raises `DroverError`."""
        ...


@dataclass(eq=False, slots=True)
class _Visit:
    """One attempt to find a session a brain. `generation` is its lease's before the attempt."""

    ref: SessionRef
    generation: int
    released: bool = False
    opened: bool = False
    limit: asyncio.Timeout | None = None
    brain: Brain | None = None

    @property
    def waits(self) -> bool:
        """Whether a brain was woken and has not stopped yet."""
        return self.limit is not None and not self.limit.expired()

    def reschedule(self, when: float | None) -> None:
        """Changes until when the brain is waited for; `None` is for as long as it works."""
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(when)


class Dispatcher:
    """Wakes brains, and wakes the next one at once when one ends without giving its lease back.

    `hear` must be told of every commit here, `see` of what other replicas did. `run` sweeps for
    sessions that nobody was told of: those that needed a brain when a process died, and those whose
    lease ran out. Where there are other replicas, what is younger than `grace_seconds` is left to
    them: they are about to see to it. `swept` counts the sessions that only the sweep has found.
    """

    def __init__(
        self,
        brains: Sequence[Brain],
        store: SessionStore,
        *,
        sweep_seconds: float = SWEEP_SECONDS,
        open_seconds: float = _OPEN_SECONDS,
        grace_seconds: float = 0.0,
        rejoin_seconds: float = _REJOIN_SECONDS,
    ) -> None:
        self._brains = brains
        self._store = store
        self.swept = 0
        self._sweep_seconds = sweep_seconds
        self._open_seconds = open_seconds
        self._grace_micros = int(grace_seconds * MICROS)
        self._rejoin_seconds = rejoin_seconds
        self._turn = itertools.count()
        self._visits: dict[str, _Visit] = {}
        self._last: OrderedDict[str, Brain] = OrderedDict()
        self._resting: dict[str, float] = {}
        # Brains that cannot be woken, and why, as far as it was told already.
        self._away: dict[str, Reason] = {}
        self._commits: Commits | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._leaving = False

    async def run(self, commits: Commits) -> None:
        """Works until cancelled. Brains that are at work then go on under their leases."""
        self._commits = commits
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                while True:
                    await self.sweep()
                    # Not in step with the other replicas.
                    await asyncio.sleep(self._sweep_seconds * random.uniform(0.75, 1.25))  # noqa: S311
            finally:
                self._tasks = None  # what is committed while the process stops wakes nobody

    @property
    def sessions(self) -> Collection[str]:
        """The sessions that a brain is being found for, or works on because of this process."""
        return self._visits.keys()

    def hear(self, news: News) -> None:
        """Wakes a brain for a session that needs one."""
        self._learn(news.ref.session_id, news.generation, free=news.released)
        if news.wake:
            self._begin(news.ref, news.generation)

    def see(self, peek: Peek) -> None:
        """Takes note of a lease that is held, or was given back, at another replica."""
        self._learn(peek.ref.session_id, peek.generation, free=not peek.held)

    def leave(self) -> None:
        """From now on streams break because this process goes: that says nothing of their brains,
        which take their leases up again at another replica.
        """
        self._leaving = True

    def desert(self, ref: SessionRef, generation: int, last_seen: int) -> None:
        """The stream of a lease broke, by which it was prolonged until `last_seen`.

        Where the brain was woken from here, the end of that call says whether it is gone. Elsewhere
        nobody else would: the process that woke it may be gone, too, and the session would wait
        until its lease runs out.
        """
        visit = self._visits.get(ref.session_id)
        if self._leaving or self._tasks is None:
            return
        if visit is None or not visit.waits:
            self._tasks.create_task(self._fence_deserter(ref, generation, last_seen))

    async def _fence_deserter(self, ref: SessionRef, generation: int, last_seen: int) -> None:
        """Takes the lease away unless the brain has taken it up again, at whatever replica."""
        await asyncio.sleep(self._rejoin_seconds)
        try:
            await self._abandon(ref, generation, last_seen)  # whose news wakes the next
        except DroverError as error:
            _log.warning("dispatch_failed", session_id=ref.session_id, reason=error.reason)

    def _learn(self, session_id: str, generation: int, *, free: bool) -> None:
        visit = self._visits.get(session_id)
        if visit is None or generation <= visit.generation:
            return
        if not visit.opened:
            visit.opened = True
            visit.reschedule(None)
            if visit.brain is not None:
                self._away.pop(visit.brain.address, None)
        if generation == visit.generation + 1:
            if free:
                self._end(visit)
        elif visit.waits:  # others have found it another brain
            self._end(visit)
            visit.reschedule(asyncio.get_running_loop().time())

    async def sweep(self) -> None:
        """Finds every session that needs a brain and has no live lease."""
        try:
            needs = await self._store.read(
                lambda tx: tx.needs(_SWEEP_LIMIT, settled_micros=self._grace_micros)
            )
            for need in needs:
                await self._sweep_one(need)
        except DroverError as error:
            _log.warning("sweep_failed", reason=error.reason, message=error.message)

    async def _sweep_one(self, need: Need) -> None:
        visit = self._visits.get(need.ref.session_id)
        if visit is None:
            self.swept += 1
            if need.expired:
                _log.warning("lease_expired", session_id=need.ref.session_id)
                await self._abandon(need.ref, need.generation)  # whose news wakes the next
            else:
                self._begin(need.ref, need.generation)
        elif need.expired and need.generation == visit.generation + 1 and visit.waits:
            _log.warning("lease_expired", session_id=need.ref.session_id)
            visit.reschedule(asyncio.get_running_loop().time())

    def _begin(self, ref: SessionRef, generation: int) -> None:
        if ref.session_id in self._visits or self._tasks is None or not self._brains:
            return
        visit = self._visits[ref.session_id] = _Visit(ref, generation)
        self._tasks.create_task(self._attend(visit))

    async def _attend(self, visit: _Visit) -> None:
        try:
            await self._visit_brains(visit)
        except DroverError as error:
            _log.warning(
                "dispatch_failed",
                session_id=visit.ref.session_id,
                reason=error.reason,
                message=error.message,
            )
        finally:
            if self._visits.get(visit.ref.session_id) is visit:
                del self._visits[visit.ref.session_id]

    async def _visit_brains(self, visit: _Visit) -> None:
        backoff = _FIRST_BACKOFF
        while True:
            failure = None
            for brain in self._order(visit.ref.session_id):
                if self._rests(brain):
                    continue
                visit.brain = brain
                failure = await self._wake(visit, brain)
                if visit.released or failure in _LEFT_ALONE:
                    return
                if failure in _NOT_NOW and not visit.opened:
                    self._resting[brain.address] = asyncio.get_running_loop().time() + _REST
                if failure is Reason.RESOURCE_EXHAUSTED:
                    continue
                if visit.opened and failure is not Reason.INTERNAL:
                    backoff = _FIRST_BACKOFF
                news = await self._abandon(visit.ref, visit.generation + 1)
                if news is None:
                    return
                visit.generation, visit.opened = news.generation, False
            # Every brain was asked, and none is at work: never a busy loop.
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311
            fault = failure is Reason.INTERNAL
            backoff = min(2 * backoff, _LONGEST_AFTER_FAULTS if fault else _LONGEST_BACKOFF)

    def _rests(self, brain: Brain) -> bool:
        until = self._resting.get(brain.address)
        return until is not None and asyncio.get_running_loop().time() < until

    async def _wake(self, visit: _Visit, brain: Brain) -> Reason | None:
        """Has a brain work; answers why it stopped without having been asked to."""
        try:
            async with asyncio.timeout(self._open_seconds) as visit.limit:
                await brain.wake(visit.ref)
        except TimeoutError:
            reason, message = Reason.UNAVAILABLE, "no lease, or none any more"
        except DroverError as error:
            reason, message = error.reason, error.message
        else:
            return None
        finally:
            visit.limit = None
        self._tell(visit, brain, reason, message)
        return reason

    def _tell(self, visit: _Visit, brain: Brain, reason: Reason, message: str) -> None:
        """Logs that a brain stopped; that it cannot be woken only once, until it can again."""
        if not visit.opened and reason in _NOT_NOW:
            if self._away.get(brain.address) is reason:
                return
            self._away[brain.address] = reason
        _log.info(
            "brain_stopped",
            session_id=visit.ref.session_id,
            brain=brain.address,
            reason=reason,
            message=message,
        )

    async def _abandon(
        self, ref: SessionRef, generation: int, last_seen: int | None = None
    ) -> News | None:
        """Takes a lease away whose brain is gone; answers news if the session needs another."""
        if self._commits is None:
            return None
        return await self._commits.write(
            lambda tx: holding.abandon(tx, ref, generation, last_seen=last_seen)
        )

    def _order(self, session_id: str) -> list[Brain]:
        """Whom to ask: the brain that knows the session, then the others in turn."""
        brains = tuple(self._brains)  # more are found, and some are no more
        start = next(self._turn) % (len(brains) or 1)
        order = [*brains[start:], *brains[:start]]
        known = self._last.get(session_id)
        if known is not None and known in order:
            order.remove(known)
            order.insert(0, known)
        return order

    def _end(self, visit: _Visit) -> None:
        """The lease was given back: the call is as good as over, and a new visit may begin."""
        visit.released = True
        del self._visits[visit.ref.session_id]
        if visit.brain is None:
            return
        self._resting.pop(visit.brain.address, None)
        self._last[visit.ref.session_id] = visit.brain
        self._last.move_to_end(visit.ref.session_id)
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)
