"""The work queue of self-hosted environments, as transactions.

An item is made, queued again and ended in the very transactions that change what its session needs,
so that none of both can be without the other (ADR 18).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from services.session.domain.news import News
from services.session.domain.work import (
    RECLAIM_MICROS,
    WorkItem,
    WorkState,
    check_stoppable,
    needs_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from chassis.ids import IdSource
    from drover.api.v1.metadata_pb2 import MetadataPatch
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionState
    from services.session.domain.work_ports import Queue

POLLING_MICROS: Final = 30_000_000
"""For how long after its last poll a worker counts as polling (ENDPOINTS, work stats)."""

_LOOKED_AT: Final = 8
"""What of a queue is looked at for a poll, when others were faster."""
_MAX_PAIRS: Final = 16
_MAX_KEY: Final = 64
_MAX_VALUE: Final = 512


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


def see_to(tx: Transaction, state: SessionState, ids: IdSource, *, opened: int = 0) -> str:
    """Queues work for a session that needs a worker and has none coming.

    `opened` of its calls were opened just now. Where those are all, a worker that was asked to stop
    has nothing left to do for it, and the next one need not wait until it has.

    Answers the environment whose workers are to hear of it; empty where there is nothing new.
    """
    if not needs_worker(state):
        return ""
    item = tx.live_work(state.id)
    if item is None:
        item = made(state, tx.details(state.id).environment_id, ids, tx.now())
        tx.add_work(item)
    elif item.state is WorkState.STOPPING and state.unanswered == opened:
        item.queue_again(tx.now())
        tx.save_work(item)
    else:
        return ""
    return item.environment_id


def made(state: SessionState, environment_id: str, ids: IdSource, now: int) -> WorkItem:
    """A new item of a session of the environment."""
    return WorkItem(ids("work"), state.ref, environment_id, now, now)


def end(tx: Transaction, state: SessionState) -> None:
    """Stops the work of a session that is at its end."""
    if state.self_hosted and (item := tx.live_work(state.id)) is not None:
        item.stop(tx.now())
        tx.save_work(item)


def get(tx: Transaction, queue: Queue, work_id: str) -> WorkItem:
    """An item of the queue. Raises NOT_FOUND."""
    item = tx.work_item(work_id)
    if item is None or (item.session.workspace_id, item.environment_id) != (
        queue.workspace_id,
        queue.environment_id,
    ):
        raise not_found(work_id)
    return item


def not_found(work_id: str) -> DroverError:
    """The refusal of an item that the environment does not have."""
    return DroverError(Reason.NOT_FOUND, f"work {work_id} not found")


def change(
    tx: Transaction, item: WorkItem, fn: Callable[[WorkItem, SessionState, int], None]
) -> tuple[WorkItem, News]:
    """Changes an item that was found before. Raises NOT_FOUND, and what `fn` raises."""
    state = tx.state(item.session)
    current = tx.work_item(item.id) if state is not None else None
    if state is None or current is None:
        raise not_found(item.id)
    before = current.state
    fn(current, state, tx.now())
    tx.save_work(current)
    queued = current.state is WorkState.QUEUED and before is not WorkState.QUEUED
    return current, News(state.ref, work=current.environment_id if queued else "")


def stop(item: WorkItem, state: SessionState, now: int, *, force: bool) -> None:
    """Stops an item: at once, or by its worker if there is one. Raises CONFLICT for a stopped one.

    While a call of its session is open it waits for another worker instead.
    """
    check_stoppable(item)
    if not force and item.state is not WorkState.QUEUED:
        item.request_stop(now)
    elif needs_worker(state) and state.unanswered:
        item.give_back(state.head_seq, now)
    else:
        item.stop(now)


def poll(
    tx: Transaction,
    queue: Queue,
    first: WorkItem,
    token: str,
    *,
    worker_id: str = "",
    reclaim_micros: int = RECLAIM_MICROS,
) -> WorkItem | None:
    """Hands out `first`, which was found free, or what comes behind it if that no longer is."""
    now, tried = tx.now(), set[str]()
    candidates = [first]
    while candidates:
        found = candidates.pop(0)
        tried.add(found.id)
        # Not until its session is locked is it sure what it is.
        item = tx.work_item(found.id) if tx.state(found.session) is not None else None
        if item is not None and item.is_free(now, reclaim_micros):
            item.hand_out(digest_of(token), worker_id, now)
            tx.save_work(item)
            return item
        if not candidates:
            waiting = tx.waiting_work(queue, now - reclaim_micros, _LOOKED_AT)
            candidates = [one for one in waiting if one.id not in tried]
    return None


def lapse(tx: Transaction, item: WorkItem) -> tuple[WorkItem | None, News | None]:
    """Takes an item from a worker that is lost: it is queued again if its session needs one.

    Answers nothing where the lease was prolonged meanwhile, or the item is gone.
    """
    state, now = tx.state(item.session), tx.now()
    current = tx.work_item(item.id) if state is not None else None
    if state is None or current is None:
        return None, None
    if current.lease_expires_at is None or current.lease_expires_at > now:
        return None, None
    if needs_worker(state):
        current.queue_again(now)
    else:
        current.stop(now)
    tx.save_work(current)
    queued = current.state is WorkState.QUEUED
    return current, News(state.ref, work=current.environment_id if queued else "")


def patch(item: WorkItem, change: MetadataPatch) -> None:
    """Changes an item's metadata. Raises INVALID_ARGUMENT (`invalid_metadata`)."""
    for key, value in change.set.items():
        if not 0 < len(key) <= _MAX_KEY:
            raise _invalid(f"a key has 1 to {_MAX_KEY} characters")
        if len(value) > _MAX_VALUE:
            raise _invalid(f"a value has at most {_MAX_VALUE} characters")
    kept = {key: value for key, value in item.metadata.items() if key not in change.remove}
    metadata = kept | dict(change.set)
    if len(metadata) > _MAX_PAIRS:
        raise _invalid(f"at most {_MAX_PAIRS} pairs are allowed")
    item.metadata = metadata


def _invalid(text: str) -> DroverError:
    return DroverError(Reason.INVALID_ARGUMENT, f"metadata: {text}", error_code="invalid_metadata")


def authenticate(tx: Transaction, digest: bytes) -> WorkItem:
    """The item that a token opens. Raises UNAUTHENTICATED for one that opens nothing."""
    item = tx.work_of_token(digest)
    if item is None:
        raise DroverError(Reason.UNAUTHENTICATED, "the work item's token is not valid, or no more")
    return item
