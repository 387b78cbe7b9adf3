"""Changing a session's title, metadata, budget and, while it is idle, its agent's tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2, session_event_pb2
from drover.session.v1 import session_service_pb2
from services.session.domain import admission, budget, inbox, lease, lifecycle, log
from services.session.domain import event as events_of
from services.session.domain.accept import EVENT_PREFIX
from services.session.domain.news import News

if TYPE_CHECKING:
    from chassis.ids import IdSource
    from drover.agent.v1 import agent_pb2
    from services.session.domain.lifecycle import Snapshot
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionDetails, SessionRef

_MAX_PAIRS: Final = 16


@dataclass(frozen=True, slots=True)
class Change:
    """What an update asks for. `revised` is the agent as it is to be, if that is asked for.

    `revised_from` is the snapshot that it was made from.
    """

    request: session_service_pb2.UpdateSessionRequest
    revised: agent_pb2.SessionAgent | None = None
    revised_from: agent_pb2.SessionAgent | None = None

    def names(self, field: str) -> bool:
        """Whether the update speaks of a field, be it to clear it."""
        if self.request.HasField("update_mask"):
            return field in self.request.update_mask.paths
        return self.request.HasField(field)  # type: ignore[arg-type]


def check(request: session_service_pb2.UpdateSessionRequest) -> None:
    """Raises INVALID_ARGUMENT for what no update changes."""
    if request.vault_ids or "vault_ids" in request.update_mask.paths:
        raise admission.refuse("vault_ids", "vaults are attached when a session is created")


def update(
    tx: Transaction, ref: SessionRef, change: Change, ids: IdSource
) -> tuple[Snapshot, News]:
    """Changes a session; what changed is an event of its log at once.

    Raises NOT_FOUND, ARCHIVED, SESSION_RUNNING for a change of the agent while it runs, and
    CONFLICT when another change of the agent came between.
    """
    snapshot = lifecycle.read(tx, ref)
    state, details = snapshot.state, snapshot.details
    if state.ended:
        raise DroverError(Reason.ARCHIVED, "the session is at its end and cannot be changed")
    changed = session_event_pb2.SessionUpdated()
    touched = _title(details, change, changed)
    touched |= _metadata(details, change, changed)
    touched |= _agent(snapshot, change, changed)
    budgeted = _budget(snapshot, change, changed)
    if not touched and not budgeted:
        return snapshot, News(ref)
    # Paused work goes on by itself; what runs is told as it goes.
    resumes = budgeted and budget.is_spent(state)
    state.needs_brain |= resumes
    event = event_pb2.Event(id=ids(EVENT_PREFIX), session_updated=changed)
    entry = log.stamp(state, event, events_of.event_type(event), snapshot.now)
    state.updated_at = snapshot.now
    tx.append(state.id, [entry])
    tx.save_details(state.id, details)
    tx.save(state)
    told = inbox.summary(state.waiting, log_grown=True)
    news = News(
        ref,
        stamped=[event],
        inbox_tail=state.inbox_tail,
        input=told,
        wake=resumes and not lease.is_live(state, snapshot.now),
        generation=state.generation,
    )
    return snapshot, news


def check_agent_free(snapshot: Snapshot) -> None:
    """Raises SESSION_RUNNING while a brain works, or soon will, with the agent as it is."""
    if snapshot.state.busy:
        raise DroverError(
            Reason.SESSION_RUNNING, "agent: an agent's tools are changed while the session is idle"
        )


def _title(
    details: SessionDetails, change: Change, changed: session_event_pb2.SessionUpdated
) -> bool:
    if not change.names("title"):
        return False
    title = change.request.title if change.request.HasField("title") else None
    if title == details.title:
        return False
    details.title = title
    changed.title = title or ""
    return True


def _metadata(
    details: SessionDetails, change: Change, changed: session_event_pb2.SessionUpdated
) -> bool:
    if not change.names("metadata"):
        return False
    metadata: dict[str, str] = {}
    if change.request.HasField("metadata"):
        patch = change.request.metadata
        kept = details.metadata.items()
        metadata = {key: value for key, value in kept if key not in patch.remove} | dict(patch.set)
    if len(metadata) > _MAX_PAIRS:
        raise admission.refuse("metadata", f"at most {_MAX_PAIRS} pairs are allowed")
    if metadata == details.metadata:
        return False
    details.metadata = metadata
    changed.metadata.update(metadata)
    return True


def _agent(snapshot: Snapshot, change: Change, changed: session_event_pb2.SessionUpdated) -> bool:
    details = snapshot.details
    if change.revised is None:
        return False
    check_agent_free(snapshot)
    if details.agent != change.revised_from:
        raise DroverError(Reason.CONFLICT, "agent: the session's agent was changed meanwhile")
    if details.agent == change.revised:
        return False
    details.agent = change.revised
    changed.agent.CopyFrom(change.revised)
    return True


def _budget(snapshot: Snapshot, change: Change, changed: session_event_pb2.SessionUpdated) -> bool:
    """Changes the cap, or removes it for good. Raises INVALID_ARGUMENT where there is none."""
    details = snapshot.details
    if not change.names("budget"):
        return False
    if not change.request.HasField("budget"):
        removed = details.budget is not None
        details.budget, changed.budget_removed = None, removed
        return removed
    cap = budget.cents(change.request.budget)
    if details.budget is None:
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            "budget: a budget is set when a session is created, and one that was removed is gone",
            error_code="budget_create_only",
        )
    budget.check_raised(snapshot.state, cap)
    if cap == details.budget:
        return False
    details.budget = cap
    changed.budget.CopyFrom(change.request.budget)
    return True
