"""What making a session from another's records needs of a store, beyond what sessions need.

A session that is being made is nobody's: it lies in no workspace, so that no request, list or brain
finds it before it is whole. Each step is a transaction of its own, bounded in events and bytes, so
that a long log keeps nobody waiting; the last one publishes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from chassis.errors import DroverError, Reason
from services.session.domain.file_ports import WithdrawFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from drover.api.v1.request_key_pb2 import RequestKey
    from services.session.domain.ports import Call, InboxEntry, LogEntry
    from services.session.domain.session import SessionDetails, SessionState, ThreadState
    from services.session.domain.work import WorkItem

T = TypeVar("T")

STEP_EVENTS: Final = 500
STEP_BYTES: Final = 4 * 1024 * 1024
"""A step takes no more than this, but always one event."""

ABANDONED_MICROS: Final = 120_000_000
"""A session that no step has touched for so long is nobody's work any more, and is removed."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of one log to be copied into another: the positions above `after`, to `upto`.

    `threads` gives each thread of the source its new id.
    """

    source_id: str
    target_id: str
    after: int
    upto: int
    threads: Mapping[str, str]


class CopyTransaction(WithdrawFiles, Protocol):
    """One step. Reads see its own writes; nothing is kept when it fails."""

    def now(self) -> int:
        """The database's time in microseconds since 1970."""
        ...

    def begin(
        self, state: SessionState, details: SessionDetails, threads: Sequence[ThreadState]
    ) -> None:
        """Adds a session that nobody sees. Raises CONFLICT when it, or a thread, is there."""
        ...

    def logged(self, session_id: str, event_ids: Collection[str]) -> set[str]:
        """Those of the ids that are in the log."""
        ...

    def calls(self, session_id: str, call_ids: Collection[str]) -> dict[str, Call]:
        """Tool calls by id; unknown ones are left out."""
        ...

    def append(self, session_id: str, entries: Sequence[LogEntry]) -> None:
        """Adds to the log. Raises ABORTED when the session is not there, or is seen already."""
        ...

    def enqueue(self, session_id: str, entries: Sequence[InboxEntry]) -> None:
        """Adds to the inbox."""
        ...

    def open_calls(self, session_id: str, calls: Sequence[Call]) -> None:
        """Adds calls."""
        ...

    def save_calls(self, session_id: str, calls: Sequence[Call]) -> None:
        """Writes the state of calls that exist."""
        ...

    def copy(self, stretch: Stretch) -> int:
        """Copies a piece of the stretch, with its calls, and answers the position it ends at.

        A call is closed in the copy if its result lies within the stretch, and open otherwise.
        Raises NOT_FOUND when the source has been deleted.
        """
        ...

    def unfinished_calls(self, session_id: str) -> list[tuple[Call, str]]:
        """Calls without a result and the types of the events that opened them, in order."""
        ...

    def answer(self, key: RequestKey) -> bytes | None:
        """What a request was answered before: see `ports.Transaction`."""
        ...

    def keep_answer(self, key: RequestKey, answer: bytes, session_id: str) -> None:
        """Keeps an answer, for as long as the session that it tells about is there."""
        ...

    def add_work(self, item: WorkItem) -> None:
        """Adds a work item of a session that is published by the same step."""
        ...

    def publish(self, state: SessionState) -> None:
        """Writes the state as it is to be and shows the session to its workspace."""
        ...

    def discard(self, session_id: str) -> bool:
        """Removes a piece of a session that nobody sees. Whether it is gone."""
        ...

    def abandoned(self, before: int) -> list[str]:
        """Sessions that nobody sees and that no step has touched since `before`."""
        ...


class CopyStore(Protocol):
    """Where the steps run."""

    async def step(self, fn: Callable[[CopyTransaction], T], /) -> T:
        """Runs `fn` in a transaction and returns once it is durable. Raises what `fn` raises.

        `fn` may be run again when its transaction was lost, and must change nothing but `tx`.
        """
        ...


def given_up(session_id: str) -> DroverError:
    """The refusal of a step whose session was removed: it had been left alone for too long."""
    return DroverError(
        Reason.UNAVAILABLE, f"session {session_id} was given up half way: it took too long"
    )


def being_made(what: str) -> DroverError:
    """The refusal of a session that another request is about to make."""
    return DroverError(
        Reason.CONFLICT, f"{what} is just being made by another request, or was left half way"
    )


def exists_already(what: str) -> DroverError:
    """The refusal of a session or thread whose id is taken."""
    return DroverError(Reason.CONFLICT, f"{what} exists already")
