"""The part of a transaction that is about work: see `work_ports.WorkTransaction`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.session.store import work
from services.session.store.files_part import FilesPart

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from services.session.domain.work import WorkItem
    from services.session.domain.work_ports import Queue, WorkStats


class WorkPart(FilesPart):
    """Work items. Items are few, and seldom asked for: nothing of them is kept in memory."""

    __slots__ = ()

    def work_item(self, work_id: str) -> WorkItem | None:
        """An item."""
        return work.by_id(self._with_work(), work_id)

    def work_of_token(self, digest: bytes) -> WorkItem | None:
        """The item that a token is of."""
        return work.by_token(self._with_work(), digest)

    def live_work(self, session_id: str) -> WorkItem | None:
        """The item of a session that has not stopped."""
        return work.live(self._with_work(), session_id)

    def add_work(self, item: WorkItem) -> None:
        """Adds an item."""
        self._writes.new_work[item.id] = work.stored(item)

    def save_work(self, item: WorkItem) -> None:
        """Writes an item."""
        self._writes.save_work(work.stored(item))

    def remove_work(self, session_id: str) -> None:
        """Removes the items of a session."""
        work.remove(self._settled(), session_id)

    def waiting_work(self, queue: Queue, handed_before: int, limit: int) -> list[WorkItem]:
        """What waits and was not handed out lately."""
        return work.waiting(self._with_work(), queue, handed_before, limit, self.now())

    def listed_work(self, queue: Queue, limit: int, key: tuple[int, str] | None) -> list[WorkItem]:
        """A page of items."""
        return work.page(self._with_work(), queue, limit, key)

    def lapsed_work(self, limit: int) -> list[WorkItem]:
        """Items whose lease has run out."""
        return work.lapsed(self._with_work(), self.now(), limit)

    def work_stats(self, queue: Queue | None = None) -> WorkStats:
        """What waits."""
        return work.stats(self._with_work(), queue)

    def note_poller(self, environment_id: str, worker_id: str) -> None:
        """Takes down that a worker polls now."""
        work.note_poller(self._settled(), environment_id, worker_id, self.now())

    def pollers(self, environment_id: str, since: int) -> int:
        """How many workers have polled since then."""
        return work.pollers(self._unit.connection, environment_id, since)

    def forget_pollers(self, before: int) -> None:
        """Removes those who have not polled since."""
        work.forget_pollers(self._settled(), before)

    def _with_work(self) -> Connection:
        """The connection, once the database was told what became of items."""
        return self._told(*(writes.work or writes.new_work for writes in self._both))
