"""Being the brain of one session: from taking its lease to giving it back."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import structlog

from chassis.errors import DroverError, Reason
from services.brain.clients.hands import GrpcHands, WarmHands
from services.brain.clients.history import LogHistory
from services.brain.clients.lease import Lease, held
from services.brain.clients.snapshot import SessionSnapshots
from services.brain.domain import mounts
from services.brain.harness.guard import HarnessFailedError
from services.brain.loop.session_log import SessionLog
from services.brain.loop.state_cache import CachedState
from services.brain.loop.sync_points import Point
from services.brain.loop.turn import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drover.environment.v1.environment_pb2 import EnvironmentConfig
    from drover.hands.v1.hands_service_pb2_grpc import HandsServiceAsyncStub
    from drover.session.v1.session_pb2 import Session
    from drover.session.v1.session_service_pb2_grpc import SessionServiceAsyncStub
    from services.brain.harness.registry import HarnessRegistry
    from services.brain.loop.checkpoints import Checkpointing
    from services.brain.loop.state_cache import StateCache
    from services.brain.loop.turn import Ports

_REMEMBERED: Final = 1_000
"""Sessions whose harness has failed, past which the oldest is forgotten."""

_log = structlog.get_logger("brain.worker")


class Worker:
    """Works on sessions, each under a lease of its own; it may be used for many at once."""

    def __init__(
        self,
        *,
        name: str,
        sessions: SessionServiceAsyncStub,
        hands: HandsServiceAsyncStub,
        harnesses: HarnessRegistry,
        ports: Ports,
        cache: StateCache,
        checkpointing: Checkpointing | None = None,
    ) -> None:
        self._name = name
        self._sessions = sessions
        # The stub is written to and read from, which its type does not know to need no requests.
        self._hold_lease: Callable[[], Any] = sessions.HoldLease  # type: ignore[assignment]
        self._hands = hands
        self._warm = WarmHands(ports.clock)
        self._harnesses = harnesses
        self._ports = ports
        self._cache = cache
        self._checkpointing = checkpointing
        self._at_work: set[Turns] = set()
        self._leaving = False
        # Sessions whose harness has failed here, with its name and what they are to be told.
        self._failed: dict[str, tuple[str, str]] = {}

    def leave(self) -> None:
        """Has every session left to another brain, as soon as nothing is lost by that."""
        self._leaving = True
        for turns in self._at_work:
            turns.leave()

    async def work(self, session_id: str) -> int:
        """Is the session's brain until it needs none; answers the lease's generation.

        Raises `DroverError`: LEASE_HELD while another brain is at work, LEASE_LOST when one has
        taken over, UNAVAILABLE when it has left the session to another brain, NOT_FOUND and
        ARCHIVED as the session service says. `HarnessFailedError`; when it is next woken for the
        session, it tells of that and has the session come to rest.
        """
        if self._leaving:
            raise DroverError(Reason.UNAVAILABLE, "this brain stops")
        ports = self._ports
        await ports.points.reach(Point.WOKEN)
        if (failure := self._failed.pop(session_id, None)) is not None:
            harnesses, checkpointing = self._harnesses.without(*failure), None
        else:
            harnesses, checkpointing = self._harnesses, self._checkpointing
        beginnings = checkpointing.beginnings(session_id) if checkpointing is not None else None
        cached = self._cache.take(session_id)
        log = SessionLog(harnesses, ports.models, cached, beginnings)
        lease = Lease(self._hold_lease, ports.clock, session_id, self._name, log)
        log.attach(lease)
        log.anticipate()
        with structlog.contextvars.bound_contextvars(session_id=session_id):
            try:
                async with asyncio.TaskGroup() as tasks, held(lease, tasks):
                    await ports.points.reach(Point.LEASE_OPENED)
                    hands = GrpcHands(
                        self._hands,
                        ports.clock,
                        self._warm,
                        session_id=session_id,
                        generation=lease.generation,
                        environment=_environment(lease.session),
                        mounts=mounts.of(lease.session),
                    )
                    history = LogHistory(
                        self._sessions,
                        ports.clock,
                        session_id=session_id,
                        thread_id=log.state.thread_id,
                    )
                    snapshots = SessionSnapshots(self._sessions, session_id)
                    turns = Turns(
                        ports, log, lease, hands, tasks, history=history, snapshots=snapshots
                    )
                    log.listen(turns.on_input)
                    with self._known(turns):
                        await turns.run()
            except ExceptionGroup as group:
                error = _first(group)
                if beginnings is not None:
                    beginnings.failed(error)
                if isinstance(error, HarnessFailedError):
                    self._remember(session_id, error)
                raise error from group
            await ports.points.reach(Point.RELEASED)
            # Only now is it sure that the log is what was folded.
            mark = log.checkpoint
            if checkpointing is not None:
                mark = checkpointing.leave(log.harness, log.state, lease.generation, mark)
        if failure is None:
            self._cache.put(CachedState(log.harness.name, log.state, mark))
        return lease.generation

    @contextmanager
    def _known(self, turns: Turns) -> Iterator[None]:
        """Has turns be told when this brain is to go."""
        self._at_work.add(turns)
        if self._leaving:
            turns.leave()
        try:
            yield
        finally:
            self._at_work.discard(turns)

    def _remember(self, session_id: str, error: HarnessFailedError) -> None:
        if len(self._failed) >= _REMEMBERED:
            del self._failed[next(iter(self._failed))]
        self._failed[session_id] = error.harness, str(error)


def _environment(session: Session) -> EnvironmentConfig | None:
    return session.environment if session.HasField("environment") else None


def _first(group: ExceptionGroup[Exception]) -> Exception:
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
