"""A work item: what a worker of a self-hosted environment is given to do (SEMANTICS §18).

An item goes from queued over starting, active and stopping to stopped. While its session needs a
worker it goes back to queued instead, under its own id, with nothing left of the worker it had.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from services.session.domain.log import timestamp
from services.session.domain.session import MICROS

if TYPE_CHECKING:
    from services.session.domain.session import SessionRef, SessionState

LEASE_SECONDS: Final = 300
"""How long a lease is that nobody asks to be of another length."""
LONGEST_LEASE_SECONDS: Final = 3600
STOPPING_MICROS: Final = 60 * MICROS
"""How long a worker has, at the most, to stop an item once it was asked to: the official one beats
every 30 s, or sooner, and stops as soon as it is told."""
RECLAIM_MICROS: Final = 5 * MICROS
"""For how long a polled item is its worker's to acknowledge, unless another poll asks for less."""
_PATIENCE: Final = 3
"""How often in a row a worker may give an item back with nothing done before it rests."""
_FIRST_REST: Final = MICROS
_LONGEST_REST: Final = 30 * MICROS
NO_HEARTBEAT: Final = "NO_HEARTBEAT"
"""What a first heartbeat expects the last one to be."""


class WorkState(IntEnum):
    """How far an item is; the numbers are those of the contract."""

    QUEUED = 1
    STARTING = 2
    ACTIVE = 3
    STOPPING = 4
    STOPPED = 5


@dataclass(slots=True)
class WorkItem:
    """An item, with the times of its last worker. Times are microseconds since 1970.

    `queued_at` is when it was queued last, `handed_at` when it was polled last and `handed_out` how
    often that was without an acknowledgement. `token` is the SHA-256 digest of the token that the
    last poll gave, `lease_expires_at` the time at which its worker counts as lost. It was given
    back `setbacks` times in a row with nothing done since the log's position `seen_seq`, and rests
    until `free_at` therefore.
    """

    id: str
    session: SessionRef
    environment_id: str
    created_at: int
    queued_at: int
    state: WorkState = WorkState.QUEUED
    handed_out: int = 0
    handed_at: int | None = None
    acknowledged_at: int | None = None
    started_at: int | None = None
    heartbeat_at: int | None = None
    stop_requested_at: int | None = None
    stopped_at: int | None = None
    lease_expires_at: int | None = None
    ttl_seconds: int = LEASE_SECONDS
    token: bytes | None = None
    worker_id: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    setbacks: int = 0
    seen_seq: int = 0
    free_at: int = 0

    @property
    def last_heartbeat(self) -> str:
        """The last heartbeat as workers give it back; empty before the first one."""
        return "" if self.heartbeat_at is None else timestamp(self.heartbeat_at).ToJsonString()

    def is_free(self, now: int, reclaim_micros: int) -> bool:
        """Whether a poll may hand it out: nobody has it, or has had it for too long unsaid."""
        waits = self.handed_at is None or self.handed_at <= now - reclaim_micros
        return self.state is WorkState.QUEUED and waits and self.free_at <= now

    def hand_out(self, token: bytes, worker_id: str, now: int) -> None:
        """Gives it to a worker. The token that an earlier poll gave is void."""
        self.handed_out += 1
        self.handed_at, self.token, self.worker_id = now, token, worker_id

    def acknowledge(self, now: int, ttl_seconds: int) -> None:
        """Takes it off the queue. Raises CONFLICT for one that was not handed out.

        Where another poll had it handed out again, both may acknowledge it, for nothing tells which
        of them does: the token of the later one is good, and the other worker will hear so.
        """
        if self.state not in _ACKNOWLEDGED or not self.handed_out:
            raise _conflict(self, "is not to be acknowledged")
        self.handed_out -= 1
        if self.state is WorkState.QUEUED:
            self.state, self.acknowledged_at = WorkState.STARTING, now
            self._prolong(now, ttl_seconds)

    def beat(self, expected: str | None, now: int, ttl_seconds: int) -> bool:
        """Takes a heartbeat; whether the lease was prolonged. False where there is nothing to keep.

        Raises LEASE_LOST (`heartbeat_precondition_failed`) when the last heartbeat is another than
        the one expected, or when nobody has the item.
        """
        if self.state in _ENDING:
            return False
        if self.state is WorkState.QUEUED or expected not in {None, self._expects}:
            raise self._not_yours()
        self.state = WorkState.ACTIVE
        # No two are alike, or the second would not be told from the first.
        self.heartbeat_at = max(now, (self.heartbeat_at or 0) + 1)
        if self.started_at is None:
            self.started_at = self.heartbeat_at
        self._prolong(now, ttl_seconds)
        return True

    @property
    def _expects(self) -> str:
        return self.last_heartbeat or NO_HEARTBEAT

    def _prolong(self, now: int, ttl_seconds: int) -> None:
        self.ttl_seconds = min(ttl_seconds, LONGEST_LEASE_SECONDS)
        self.lease_expires_at = now + self.ttl_seconds * MICROS

    def _not_yours(self) -> DroverError:
        current = {
            "last_heartbeat": self.last_heartbeat or None,
            "lease_extended": False,
            "state": self.state.name.lower(),
            "ttl_seconds": self.ttl_seconds,
        }
        return DroverError(
            Reason.LEASE_LOST,
            "expected_last_heartbeat does not match: the work item was queued again, or another "
            "worker holds its lease",
            error_code="heartbeat_precondition_failed",
            current_state=json.dumps(current),
        )

    def request_stop(self, now: int) -> None:
        """Asks its worker to stop. It has no more than its lease, and `STOPPING_MICROS`, to do so.

        To be called for one that a worker has.
        """
        if self.state is WorkState.STOPPING:
            return
        self.state, self.stop_requested_at = WorkState.STOPPING, now
        self.lease_expires_at = min(self.lease_expires_at or now, now + STOPPING_MICROS)

    def stop(self, now: int) -> None:
        """Ends it. Its token stays, so that its worker can learn of it."""
        self.state, self.stopped_at = WorkState.STOPPED, now
        if self.stop_requested_at is None:
            self.stop_requested_at = now
        self.lease_expires_at = None

    def queue_again(self, now: int) -> None:
        """Has it wait for another worker, behind what waits already. Its token is void."""
        self.state, self.queued_at = WorkState.QUEUED, now
        self.handed_out, self.worker_id = 0, ""
        self.handed_at = self.acknowledged_at = self.started_at = self.heartbeat_at = None
        self.stop_requested_at = self.lease_expires_at = self.token = None

    def give_back(self, head_seq: int, now: int) -> None:
        """As `queue_again`, by whoever stops it where the session's log ends at `head_seq`.

        A worker that fails at it at once would get it again at once, and so on: where nothing was
        done between, several times in a row, it rests for longer and longer.
        """
        self.setbacks = self.setbacks + 1 if head_seq == self.seen_seq else 0
        self.seen_seq = head_seq
        over = self.setbacks - _PATIENCE
        self.free_at = now + min(_FIRST_REST << over, _LONGEST_REST) if over >= 0 else 0
        self.queue_again(now)


_ACKNOWLEDGED: Final = frozenset({WorkState.QUEUED, WorkState.STARTING, WorkState.ACTIVE})
_ENDING: Final = frozenset({WorkState.STOPPING, WorkState.STOPPED})


def check_stoppable(item: WorkItem) -> None:
    """Raises CONFLICT for an item that has stopped."""
    if item.state is WorkState.STOPPED:
        raise _conflict(item, "has stopped already")


def _conflict(item: WorkItem, text: str) -> DroverError:
    return DroverError(Reason.CONFLICT, f"work {item.id} {text}: it is {item.state.name.lower()}")


def needs_worker(state: SessionState) -> bool:
    """Whether a session needs a worker: it runs, or waits for the answer to a call.

    Whatever the call waits for, be it a person's word first: a worker that serves the session stays
    for that, and only it knows which tools of the client's own are its to run.
    """
    return state.self_hosted and not state.ended and (state.busy or state.unanswered > 0)
