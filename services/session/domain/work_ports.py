"""What the work queue needs of a store, as a part of the session service's transactions.

An item changes only under the lock of its session (`Transaction.state`), by whichever way it is
found: what was read before that is looked at again behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from services.session.domain.work import WorkItem


@dataclass(frozen=True, slots=True)
class Queue:
    """The work of one environment."""

    workspace_id: str
    environment_id: str


@dataclass(frozen=True, slots=True)
class WorkStats:
    """What waits, in one queue or in all of them. Times are microseconds since 1970.

    `depth` counts what nobody has, `pending` what was handed out and not acknowledged, and
    `oldest_queued_at` is of both.
    """

    depth: int = 0
    pending: int = 0
    oldest_queued_at: int | None = None


class WorkTransaction(Protocol):
    """The part of a transaction that is about work."""

    def work_item(self, work_id: str) -> WorkItem | None:
        """An item, whatever its workspace."""
        ...

    def work_of_token(self, digest: bytes) -> WorkItem | None:
        """The item whose last poll gave the token of this digest."""
        ...

    def live_work(self, session_id: str) -> WorkItem | None:
        """The session's item that has not stopped. There is one at most."""
        ...

    def add_work(self, item: WorkItem) -> None:
        """Adds an item of a session that has no live one."""
        ...

    def save_work(self, item: WorkItem) -> None:
        """Writes an item that exists."""
        ...

    def remove_work(self, session_id: str) -> None:
        """Removes all items of a session."""
        ...

    def waiting_work(self, queue: Queue, handed_before: int, limit: int) -> list[WorkItem]:
        """What waits, does not rest, and was not handed out since `handed_before`.

        The longest first.
        """
        ...

    def listed_work(self, queue: Queue, limit: int, key: tuple[int, str] | None) -> list[WorkItem]:
        """A page of items, the newest first. It begins behind `key`, a time and an id."""
        ...

    def lapsed_work(self, limit: int) -> list[WorkItem]:
        """Items whose lease has run out, the longest ago first."""
        ...

    def work_stats(self, queue: Queue | None = None) -> WorkStats:
        """What waits; in all queues if none is named."""
        ...

    def note_poller(self, environment_id: str, worker_id: str) -> None:
        """Takes down that a worker polls now."""
        ...

    def pollers(self, environment_id: str, since: int) -> int:
        """How many workers have polled since then."""
        ...

    def forget_pollers(self, before: int) -> None:
        """Removes those who have not polled since."""
        ...
