"""Taking, keeping and taking away the lease of a session, as transactions."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason
from services.session.domain import checkpoints, inbox, lease, lifecycle
from services.session.domain.append import append_to
from services.session.domain.news import News
from services.session.domain.ports import LogQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.ids import IdSource
    from drover.session.v1 import lease_pb2
    from services.session.domain.append import Appends
    from services.session.domain.checkpoints import Format
    from services.session.domain.lifecycle import Snapshot
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionRef

SLICE_EVENTS = 500
SLICE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Opened:
    """A lease as it was taken: the session, what waits for the brain, and the log's first slice.

    `first` has the events as they are stored; `appends` is what became of the requests that came
    with the opening, if there were any. With `formats` a checkpoint is to be looked for in one of
    them, and `first` is empty: where the log begins for the brain is not known yet.
    """

    snapshot: Snapshot
    input: lease_pb2.InputWaiting
    first: list[bytes]
    appends: Appends | None
    news: News
    formats: frozenset[Format]


def open_lease(
    tx: Transaction,
    ref: SessionRef,
    request: lease_pb2.OpenLease,
    with_it: Sequence[lease_pb2.AppendEvents],
    ids: IdSource,
) -> Opened:
    """Takes the lease for a brain, or takes it up again, and appends what came with the request.

    Of a log that goes on behind what the brain has seen nothing is taken: it might be in the midst
    of a turn, whose input is not the next message.

    Raises NOT_FOUND, ARCHIVED, LEASE_HELD, LEASE_LOST, and INVALID_ARGUMENT for a position that
    the log has not reached.
    """
    snapshot = lifecycle.read(tx, ref)
    state, now = snapshot.state, snapshot.now
    if request.after_seq > state.head_seq:
        raise DroverError(
            Reason.INVALID_ARGUMENT, f"open.after_seq: the log ends at {state.head_seq}"
        )
    if request.generation:
        lease.resume(state, request.generation, request.holder, now)
    else:
        lease.acquire(state, request.holder, now)
    formats = checkpoints.wanted(request, state.head_seq)
    first = [] if formats else next_slice(tx, ref, request.after_seq, state.head_seq)
    waiting = inbox.summary(state.waiting)
    if with_it:
        if request.after_seq < state.head_seq:
            with_it = [_taking_nothing(one) for one in with_it]
        appends = append_to(tx, state, state.head_seq, with_it, ids)
        news = dataclasses.replace(appends.news, opened=True)
        return Opened(snapshot, waiting, first, appends, news, formats)
    tx.save(state)
    news = News(ref, generation=state.generation, opened=True)
    return Opened(snapshot, waiting, first, None, news, formats)


def _taking_nothing(request: lease_pb2.AppendEvents) -> lease_pb2.AppendEvents:
    copy = type(request)()
    copy.CopyFrom(request)
    copy.ClearField("take")
    return copy


def next_slice(tx: Transaction, ref: SessionRef, after: int, upto: int) -> list[bytes]:
    """The next piece of the log up to a position, as it is stored; empty once that is reached."""
    if after >= upto:
        return []
    return tx.stored_log(ref.session_id, LogQuery(after, upto, SLICE_EVENTS, SLICE_BYTES))


def abandon(
    tx: Transaction, ref: SessionRef, generation: int, *, last_seen: int | None = None
) -> tuple[News | None, News | None]:
    """Takes the lease of `generation` away, if it still is one, because its brain is gone.

    With `last_seen`, a time at which the lease was to expire, it stays if it was prolonged since.
    Answers news for whoever wakes brains if the session then needs one and has none. It has none
    to answer where that lease was given back, or others have passed it on: whoever brought input
    since, or took it away, sees to the session.
    """
    state = tx.state(ref)
    if state is None:
        return None, None
    fenced = state.lease_expires_at is not None and state.generation == generation
    if fenced and last_seen is not None and (state.lease_expires_at or 0) > last_seen:
        return None, None
    if fenced:
        lease.revoke(state)
        state.updated_at = tx.now()
        tx.save(state)
    ours = fenced or state.generation < generation
    wake = ours and state.needs_brain and not lease.is_live(state, tx.now())
    news = News(ref, wake=wake, generation=state.generation, fenced=fenced)
    return (news if wake else None), news
