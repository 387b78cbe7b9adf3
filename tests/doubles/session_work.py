"""Work items in memory: the part of a transaction in memory that is about them."""

from __future__ import annotations

import copy

from services.session.domain.work import WorkState
from services.session.domain.work_ports import WorkStats


class MemoryWork:
    """To be mixed into a transaction that has `_tables` and `now`."""

    def _items(self, fits, order=lambda item: item.id, *, newest=False):
        found = [copy.deepcopy(item) for item in self._tables.work.values() if fits(item)]
        return sorted(found, key=order, reverse=newest)

    def work_item(self, work_id):
        return copy.deepcopy(self._tables.work.get(work_id))

    def work_of_token(self, digest):
        return next(iter(self._items(lambda item: item.token == digest)), None)

    def live_work(self, session_id):
        found = self._items(lambda item: item.session.session_id == session_id and _lives(item))
        assert len(found) <= 1, "a session has one live item at most"
        return found[0] if found else None

    def add_work(self, item):
        assert item.id not in self._tables.work, "ids are unique"
        assert item.session.session_id in self._tables.sessions, "its session is there"
        self._tables.work[item.id] = copy.deepcopy(item)

    def save_work(self, item):
        assert item.id in self._tables.work, "it exists"
        self._tables.work[item.id] = copy.deepcopy(item)

    def remove_work(self, session_id):
        for item in self._items(lambda item: item.session.session_id == session_id):
            del self._tables.work[item.id]

    def waiting_work(self, queue, handed_before, limit):
        def waits(item):
            free = item.handed_at is None or item.handed_at <= handed_before
            free = free and item.free_at <= self.now()
            return _is_of(item, queue) and item.state is WorkState.QUEUED and free

        return self._items(waits, lambda item: (item.queued_at, item.id))[:limit]

    def listed_work(self, queue, limit, key):
        def place(item):
            return item.created_at, item.id

        found = self._items(lambda item: _is_of(item, queue), place, newest=True)
        return [item for item in found if key is None or place(item) < key][:limit]

    def lapsed_work(self, limit):
        def has_lapsed(item):
            return item.lease_expires_at is not None and item.lease_expires_at <= self.now()

        return self._items(has_lapsed, lambda item: item.lease_expires_at)[:limit]

    def work_stats(self, queue=None):
        waiting = self._items(
            lambda item: item.state is WorkState.QUEUED and (not queue or _is_of(item, queue))
        )
        pending = sum(item.handed_at is not None for item in waiting)
        oldest = min((item.queued_at for item in waiting), default=None)
        return WorkStats(len(waiting) - pending, pending, oldest)

    def note_poller(self, environment_id, worker_id):
        seen = self._tables.pollers.get((environment_id, worker_id), 0)
        self._tables.pollers[environment_id, worker_id] = max(seen, self.now())

    def pollers(self, environment_id, since):
        pollers = self._tables.pollers.items()
        return sum(name[0] == environment_id and at > since for name, at in pollers)

    def forget_pollers(self, before):
        for name in [name for name, at in self._tables.pollers.items() if at < before]:
            del self._tables.pollers[name]


def _lives(item):
    return item.state is not WorkState.STOPPED


def _is_of(item, queue):
    return (item.session.workspace_id, item.environment_id) == (
        queue.workspace_id,
        queue.environment_id,
    )
