"""The state of a session and of a thread, and what status events make of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from drover.agent.v1 import agent_pb2
from drover.environment.v1 import environment_pb2
from services.session.domain.event import InputClass

if TYPE_CHECKING:
    from drover.event.v1 import event_pb2, session_event_pb2
    from drover.session.v1 import session_pb2

MICROS = 1_000_000


class Status(IntEnum):
    """The states of a session and of a thread; the numbers are those of `SessionStatus`."""

    IDLE = 1
    RUNNING = 2
    RESCHEDULING = 3
    TERMINATED = 4


class Stop(IntEnum):
    """Why the session last went idle. `NONE` before its first turn."""

    NONE = 0
    END_TURN = 1
    REQUIRES_ACTION = 2
    RETRIES_EXHAUSTED = 3
    BUDGET_REACHED = 4
    REFUSAL = 5


_STATUSES = {
    "status_running": Status.RUNNING,
    "status_idle": Status.IDLE,
    "status_rescheduled": Status.RESCHEDULING,
    "status_terminated": Status.TERMINATED,
}


@dataclass(frozen=True, slots=True)
class SessionRef:
    """Names a session within the workspace of its caller."""

    workspace_id: str
    session_id: str


@dataclass(slots=True)
class Activity:
    """A status with the time spent in `running`. Times are microseconds since 1970."""

    status: Status = Status.IDLE
    running_since: int | None = None
    active_micros: int = 0
    ended_at: int | None = None

    def enter(self, status: Status, now: int) -> None:
        """Goes to `status`. Nothing leaves `terminated`."""
        if self.status is Status.TERMINATED:
            return
        if self.running_since is not None and status is not Status.RUNNING:
            self.active_micros += now - self.running_since
            self.running_since = None
        elif self.running_since is None and status is Status.RUNNING:
            self.running_since = now
        self.status = status
        if status is Status.TERMINATED:
            self.ended_at = now

    def active_seconds(self, now: int) -> float:
        """Seconds in `running` so far."""
        running = 0 if self.running_since is None else max(0, now - self.running_since)
        return (self.active_micros + running) / MICROS


@dataclass(slots=True)
class Waiting:
    """How many events of each class wait in the inbox."""

    interrupts: int = 0
    confirmations: int = 0
    messages: int = 0

    def add(self, kind: InputClass, count: int = 1) -> None:
        """Counts `count` more of a class; a negative count takes them away."""
        if kind is InputClass.INTERRUPT:
            self.interrupts += count
        elif kind is InputClass.CONFIRMATION:
            self.confirmations += count
        else:
            self.messages += count

    @property
    def total(self) -> int:
        """All that wait."""
        return self.interrupts + self.confirmations + self.messages


@dataclass(slots=True)
class SessionState:
    """What every transaction on a session reads and writes: one narrow row.

    `head_seq` is the log's last position and `head_at` its stamp, `inbox_tail` the last position
    given in the inbox. `unanswered` counts the calls that wait for a client: asked ones without a
    confirmation, custom ones and those for workers without a result. `lease_expires_at` is unset
    while no lease is held. `self_hosted` says of the session's environment that workers run its
    tools. Times are microseconds since 1970 by the database's clock.
    """

    id: str
    workspace_id: str
    agent_id: str
    agent_version: int
    primary_thread_id: str
    created_at: int
    updated_at: int
    archived_at: int | None = None
    activity: Activity = field(default_factory=Activity)
    stop: Stop = Stop.NONE
    head_seq: int = 0
    head_at: int = 0
    inbox_tail: int = 0
    waiting: Waiting = field(default_factory=Waiting)
    unanswered: int = 0
    needs_brain: bool = False
    generation: int = 0
    holder: str = ""
    lease_expires_at: int | None = None
    usage: bytes = b""
    self_hosted: bool = False

    @property
    def ref(self) -> SessionRef:
        """The session's name."""
        return SessionRef(self.workspace_id, self.id)

    @property
    def ended(self) -> bool:
        """Whether the session takes no events any more."""
        return self.archived_at is not None or self.activity.status is Status.TERMINATED

    @property
    def status(self) -> Status:
        """The status that clients see: what needs a brain runs, be the brain still on its way.

        Otherwise a client that sends a message and then asks until the session is idle would find
        it so before its turn has begun.
        """
        waits = self.needs_brain and self.activity.status is Status.IDLE
        return Status.RUNNING if waits else self.activity.status

    @property
    def busy(self) -> bool:
        """Whether archive, delete and updates of the agent must wait: it runs, or soon will."""
        return self.status in {Status.RUNNING, Status.RESCHEDULING}

    def copy(self) -> SessionState:
        """A copy to change, so that a refused request leaves no trace."""
        # By hand: every append makes one, and `copy.copy` takes four times as long.
        activity, waiting = self.activity, self.waiting
        return SessionState(
            self.id,
            self.workspace_id,
            self.agent_id,
            self.agent_version,
            self.primary_thread_id,
            self.created_at,
            self.updated_at,
            self.archived_at,
            Activity(
                activity.status, activity.running_since, activity.active_micros, activity.ended_at
            ),
            self.stop,
            self.head_seq,
            self.head_at,
            self.inbox_tail,
            Waiting(waiting.interrupts, waiting.confirmations, waiting.messages),
            self.unanswered,
            self.needs_brain,
            self.generation,
            self.holder,
            self.lease_expires_at,
            self.usage,
            self.self_hosted,
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a session was forked: its log up to `seq` is that session's, with what it used."""

    session_id: str
    seq: int


@dataclass(slots=True)
class SessionDetails:
    """What of a session seldom changes and may be large: the snapshots that it works with.

    `budget` is the most that it may cost, in cents. Of `resources` the secrets are not here: the
    vault proxy has them.
    """

    environment_id: str
    agent: agent_pb2.SessionAgent
    environment: environment_pb2.EnvironmentConfig
    title: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    origin: Origin | None = None
    budget: int | None = None
    resources: tuple[session_pb2.SessionResource, ...] = ()
    vault_ids: tuple[str, ...] = ()


@dataclass(slots=True)
class ThreadState:
    """A thread of a session. The primary one has no parent."""

    id: str
    session_id: str
    created_at: int
    updated_at: int
    parent_thread_id: str | None = None
    archived_at: int | None = None
    activity: Activity = field(default_factory=Activity)


def status_of(name: str) -> Status | None:
    """The status that a variant puts the session into."""
    return _STATUSES.get(name.removeprefix("session_"))


def thread_status_of(event: event_pb2.Event, name: str) -> tuple[str, Status] | None:
    """The thread that a variant speaks of, and the status that it puts it into."""
    if not name.startswith("session_thread_status"):
        return None
    status = _STATUSES[name.removeprefix("session_thread_")]
    return getattr(event, name).session_thread_id, status


def stop_of(reason: session_event_pb2.StopReason) -> Stop:
    """The kind of a stop reason."""
    return Stop[(reason.WhichOneof("reason") or "none").upper()]
