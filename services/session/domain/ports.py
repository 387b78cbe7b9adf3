"""What the session service needs of a store: transactions with a few plain reads and writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

from drover.event.v1 import user_event_pb2
from services.session.domain.event import WAIT_FOR_CLIENT, CallKind
from services.session.domain.file_ports import FileTransaction
from services.session.domain.work_ports import WorkTransaction

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Sequence

    from drover.api.v1.request_key_pb2 import RequestKey
    from drover.event.v1 import event_pb2
    from services.session.domain.event import InputClass
    from services.session.domain.session import (
        SessionDetails,
        SessionRef,
        SessionState,
        Status,
        ThreadState,
        Waiting,
    )

T = TypeVar("T")


class CallState(IntEnum):
    """How far a tool call is: a confirmation may be there before the result."""

    OPEN = 1
    ANSWERED = 2
    CLOSED = 3
    # A person has allowed it, and now a worker has to answer it.
    ALLOWED = 4


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a session. `result_id` names the event that closed it."""

    id: str
    kind: CallKind
    state: CallState = CallState.OPEN
    result_id: str = ""

    @property
    def awaited(self) -> bool:
        """Whether the session waits for somebody outside to say something about it."""
        opened = self.state is CallState.OPEN and self.kind in WAIT_FOR_CLIENT
        return opened or self.state is CallState.ALLOWED

    def confirmed(self, result: user_event_pb2.ConfirmationResult.ValueType) -> Call:
        """The call once a person has said whether it may run."""
        allowed = result == user_event_pb2.CONFIRMATION_RESULT_ALLOW
        hosted = allowed and self.kind is CallKind.ASK_SELF_HOSTED
        return replace(self, state=CallState.ALLOWED if hosted else CallState.ANSWERED)

    @property
    def with_worker(self) -> bool:
        """Whether it waits for a worker's result, and for nothing else."""
        opened = self.state is CallState.OPEN and self.kind is CallKind.SELF_HOSTED
        return opened or self.state is CallState.ALLOWED


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A stamped event on its way into the log."""

    event: event_pb2.Event
    type: str


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """An event that waits, or waited, in the inbox. `taken_seq` is the position it became."""

    position: int
    kind: InputClass
    type: str
    event: event_pb2.Event
    taken_seq: int | None = None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A closed range of microseconds since 1970. An open end is `None`."""

    low: int | None = None
    high: int | None = None

    def __bool__(self) -> bool:
        return self.low is not None or self.high is not None


ANY_TIME = TimeRange()


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A slice of a log: positions above `after` and up to `upto`, at most `limit` events.

    `max_bytes` bounds the slice too, but never below one event. A descending one begins at `upto`,
    which the log has reached. No `types` means all. `threads` are values of the events'
    `thread_id`: that of a child thread alone, or the two that stand for the primary one.
    """

    after: int
    upto: int
    limit: int
    max_bytes: int
    descending: bool = False
    types: Sequence[str] = ()
    threads: Sequence[str] = ()

    @property
    def exact(self) -> bool:
        """Whether a store finds what matches without reading what does not."""
        return not self.threads or (len(self.threads) == 1 and not self.types)


@dataclass(frozen=True, slots=True)
class InboxQuery:
    """What waited in the inbox when the log's head was `head`: positions above `after`, to `upto`.

    Events that were taken since are among them, as they are in the log.
    """

    head: int
    after: int
    upto: int
    limit: int
    max_bytes: int
    descending: bool = False
    types: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """A page of sessions, by creation time and id. It begins behind `key`."""

    workspace_id: str
    limit: int
    descending: bool = True
    key: tuple[int, str] | None = None
    agent_id: str | None = None
    agent_version: int | None = None
    created: TimeRange = ANY_TIME
    include_archived: bool = False
    statuses: Collection[Status] = ()
    memory_store_id: str | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """A session that needs a brain and has no live lease. `expired` means one ran out."""

    ref: SessionRef
    generation: int
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Stalled:
    """A session that needs a brain, or has one, and whose log does not grow.

    `since` is when it last did, or began to run; `None` for one that does not run yet: it came to
    need a brain at some time since its last event. `held` means that its lease is alive; `holder`
    names who has, or had it. `last_type` is the type of the log's last event, empty before the
    first; `calling` says that a tool call is open.
    """

    ref: SessionRef
    since: int | None
    head_seq: int
    last_type: str
    held: bool
    holder: str
    generation: int
    calling: bool

    @property
    def waits_for(self) -> str:
        """What the next event has to come from, as far as the last one tells."""
        if not self.held:
            return "a brain"
        if self.last_type.endswith("status_rescheduled"):
            return "the brain's next attempt at its model"
        if self.calling:
            return "its tools"
        return "the model" if self.last_type == "span.model_request_start" else "its brain"


@dataclass(frozen=True, slots=True)
class Peek:
    """How far a session is: what tells whether another process has changed it.

    `held` says that someone has its lease, be it alive or not; `ended`, that nothing more enters
    its log.
    """

    ref: SessionRef
    head_seq: int
    inbox_tail: int
    waiting: Waiting
    generation: int
    held: bool
    ended: bool


@dataclass(frozen=True, slots=True)
class About:
    """What a transaction will look at, as far as its caller knows, by the methods it will call.

    Hints only: with them transactions are run together, and what each will ask for is fetched for
    all at once. One that does more than it said is right all the same, and slower.
    """

    ref: SessionRef | None = None
    """The session whose `state` is read."""
    logged: Collection[str] = ()
    found: Collection[str] = ()
    calls: Collection[str] = ()
    waiting: bool = False
    key: RequestKey | None = None
    """The request whose `answer` is asked for."""


UNKNOWN = About()


@dataclass(frozen=True, slots=True)
class HandRelease:
    """A hand to be released, kept until the hands service has done it.

    `generation` is the session's last lease; with `secrets` the vault proxy keeps some, or may,
    which must go too.
    """

    id: int
    ref: SessionRef
    generation: int
    purge: bool
    secrets: bool = False
    attempts: int = 0


class Transaction(FileTransaction, WorkTransaction, Protocol):
    """One transaction. Reads see its own writes; nothing is kept when it fails."""

    def now(self) -> int:
        """The database's time in microseconds since 1970, the same throughout the transaction."""
        ...

    # sessions and threads

    def state(self, ref: SessionRef) -> SessionState | None:
        """A session of the caller's workspace, locked for the rest of a writing transaction."""
        ...

    def details(self, session_id: str) -> SessionDetails:
        """The large part of a session that is known to exist."""
        ...

    def create(self, state: SessionState, details: SessionDetails, thread: ThreadState) -> None:
        """Adds a session with its primary thread."""
        ...

    def save(self, state: SessionState) -> None:
        """Writes a session's state."""
        ...

    def save_details(self, session_id: str, details: SessionDetails) -> None:
        """Writes the large part of a session."""
        ...

    def remove(self, session_id: str) -> None:
        """Removes a session with all that belongs to it."""
        ...

    def sessions(self, query: SessionQuery) -> list[tuple[SessionState, SessionDetails]]:
        """A page of sessions in the order asked for."""
        ...

    def threads(self, session_id: str) -> list[ThreadState]:
        """A session's threads, the primary one first, then by creation."""
        ...

    def save_thread(self, thread: ThreadState) -> None:
        """Writes a thread that exists."""
        ...

    # log and inbox

    def append(self, session_id: str, entries: Sequence[LogEntry]) -> None:
        """Adds to the log. Positions and stamps are in the events already."""
        ...

    def log(self, session_id: str, query: LogQuery) -> tuple[list[event_pb2.Event], bool]:
        """A slice of the log, and whether more of it lies beyond the limits."""
        ...

    def stored_log(self, session_id: str, query: LogQuery) -> list[bytes]:
        """As `log`, each event as it is stored: for those who only pass it on."""
        ...

    def positions(self, session_id: str, query: LogQuery) -> list[int]:
        """The positions of a slice, whatever it takes in bytes."""
        ...

    def first_at(self, session_id: str, head: int, micros: int) -> int:
        """The first position stamped at or after a time, in microseconds since 1970.

        The one behind `head`, where the log ends, if there is none.
        """
        ...

    def logged(
        self, session_id: str, event_ids: Collection[str], *, surely: bool = True
    ) -> set[str]:
        """Those of the ids that are in the log.

        Unless it must be told `surely`, a store may leave some out in a transaction that writes:
        should it then append one of them again, it is run once more and told all.
        """
        ...

    def find(self, session_id: str, event_ids: Collection[str]) -> dict[str, event_pb2.Event]:
        """Events by id as they are stored: in the log, or still in the inbox."""
        ...

    def enqueue(self, session_id: str, entries: Sequence[InboxEntry]) -> None:
        """Adds to the inbox."""
        ...

    def waiting(
        self, session_id: str, kinds: Collection[InputClass], limit: int
    ) -> list[InboxEntry]:
        """The oldest events of these classes that nobody has taken."""
        ...

    def take(self, session_id: str, taken: Sequence[tuple[int, int]]) -> None:
        """Marks inbox positions as taken, each with the log position that it became."""
        ...

    def inbox(self, session_id: str, query: InboxQuery) -> tuple[list[InboxEntry], bool]:
        """A slice of the inbox, and whether more of it lies beyond the limits."""
        ...

    # calls

    def calls(self, session_id: str, call_ids: Collection[str]) -> dict[str, Call]:
        """Tool calls by id; unknown ones are left out."""
        ...

    def open_calls(self, session_id: str, calls: Sequence[Call]) -> None:
        """Adds calls."""
        ...

    def save_calls(self, session_id: str, calls: Sequence[Call]) -> None:
        """Writes the state of calls that exist."""
        ...

    # requests that are repeated

    def answer(self, key: RequestKey) -> bytes | None:
        """What a request was answered before; `None` for one that is to have its effect.

        Other transactions that ask so wait for this one. Raises CONFLICT for a client's key that
        another request had, and NOT_FOUND when the session that the answer tells about is gone.
        """
        ...

    def keep_answer(self, key: RequestKey, answer: bytes, session_id: str) -> None:
        """Keeps an answer, for as long as the session that it tells about is there."""
        ...

    def forget_answers(self, limit: int) -> int:
        """Removes so many answers at most whose time is over; returns how many there were."""
        ...

    # work for others

    def needs(self, limit: int, *, settled_micros: int = 0) -> list[Need]:
        """Sessions that need a brain and have no live lease, longest first.

        Those that came to need one, or whose lease ran out, within the last `settled_micros` are
        left out: whoever brought that about is about to wake a brain.
        """
        ...

    def stalled(self, before: int, limit: int, workspace_id: str | None = None) -> list[Stalled]:
        """Sessions that need a brain, be it there or not, without an event since `before`.

        Of one workspace, or of all.
        """
        ...

    def peek(self, session_ids: Collection[str]) -> dict[str, Peek]:
        """How far sessions are, whatever their workspace; those that are no more are left out."""
        ...

    def request_release(
        self, ref: SessionRef, generation: int, *, purge: bool, secrets: bool = False
    ) -> None:
        """Notes that a session's hand must go, and take nothing of the lease `generation` more.

        With `secrets` those that the vault proxy keeps for the session go too.
        """
        ...

    def lease_releases(self, limit: int, lease_micros: int) -> list[HandRelease]:
        """Releases whose time has come; they are nobody else's for `lease_micros`."""
        ...

    def finish_release(self, release_id: int) -> None:
        """Strikes a release off the list."""
        ...

    def postpone_release(self, release_id: int, delay_micros: int) -> None:
        """Has a failed release tried again later."""
        ...


class SessionStore(Protocol):
    """Where sessions are kept."""

    async def read(self, fn: Callable[[Transaction], T], /) -> T:
        """Runs `fn` on a snapshot of what is committed."""
        ...

    async def write(self, fn: Callable[[Transaction], T], /, *, about: About = UNKNOWN) -> T:
        """Runs `fn` in a transaction and returns once it is durable. Raises what `fn` raises.

        Writes that wait at the same time may share a commit; one that fails, fails alone, and those
        of one session are run in the order in which they came. `fn` is run again when its
        transaction was lost before the commit, and leaves no trace but in `tx`. Raises UNAVAILABLE
        while the database does not answer or another process keeps the session locked, and
        RESOURCE_EXHAUSTED when too many writes wait or the disk is full.
        """
        ...

    def submit(
        self, fn: Callable[[Transaction], T], /, *, about: About = UNKNOWN
    ) -> asyncio.Future[T]:
        """As `write`, for whoever need not wait. Cancelled before it has begun, it is left out.

        The futures of writes that shared a commit end in the order in which those ran.
        """
        ...
