"""What leaves with an export: the session as it was at one moment, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drover.session.v1 import transfer_pb2
from services.session.domain import listing, log
from services.session.domain.accept import not_found
from services.session.domain.listing import EventsQuery
from services.session.domain.ports import LogQuery
from services.session.domain.snapshot import describe

if TYPE_CHECKING:
    from services.session.domain.listing import Place
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionRef

_PAGE: Final = EventsQuery(limit=1000, max_bytes=1024 * 1024)


@dataclass(frozen=True, slots=True)
class Export:
    """An export on its way: what was said of the session, and where its records go on.

    The log's last position then is pinned: what enters it later is not part of the export, and
    what waited then is told as waiting.
    """

    snapshot: transfer_pb2.SessionSnapshot
    next: Place | None


def begin(tx: Transaction, ref: SessionRef) -> Export:
    """The session without its events. Raises NOT_FOUND."""
    state = tx.state(ref)
    if state is None:
        raise not_found(ref)
    idles = LogQuery(0, state.head_seq, 1, 1, descending=True, types=("session.status_idle",))
    idle = next(iter(tx.log(state.id, idles)[0]), None)
    reason = None if idle is None else idle.session_status_idle.stop_reason
    snapshot = describe(state, tx.details(state.id), tx.threads(state.id), reason)
    return Export(snapshot, listing.begin(tx, state, _PAGE))


def advance(
    tx: Transaction, ref: SessionRef, export: Export
) -> tuple[list[transfer_pb2.SessionRecord], Export]:
    """The next records. Raises NOT_FOUND when the session was deleted meanwhile."""
    page = listing.list_events(tx, ref, _PAGE, export.next)
    records = []
    for event in page.events:
        if event.seq and event.seq <= export.snapshot.events:
            records.append(transfer_pb2.SessionRecord(event=event))
        else:
            log.unstamp(event)
            records.append(transfer_pb2.SessionRecord(waiting=event))
    return records, Export(export.snapshot, page.next)


def end(export: Export) -> transfer_pb2.SessionRecord:
    """The last record."""
    return transfer_pb2.SessionRecord(
        end=transfer_pb2.SessionRecordsEnd(
            events=export.snapshot.events, waiting=export.snapshot.waiting
        )
    )
