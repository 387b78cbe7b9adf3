"""A session without its events, as it leaves one installation and enters another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.duration_pb2 import Duration

from drover.session.v1 import transfer_pb2
from services.session.domain import budget
from services.session.domain.admission import refuse
from services.session.domain.log import timestamp
from services.session.domain.resources import given, kinds
from services.session.domain.session import (
    MICROS,
    Activity,
    Origin,
    SessionDetails,
    SessionState,
    Status,
    ThreadState,
)
from services.session.domain.view import STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.timestamp_pb2 import Timestamp

    from drover.event.v1 import session_event_pb2

_NANOS: Final = 1000
_MAX_SECONDS: Final = 253_402_300_799
"""The end of the year 9999, the last that a timestamp may name."""


def describe(
    state: SessionState,
    details: SessionDetails,
    threads: Iterable[ThreadState],
    stop_reason: session_event_pb2.StopReason | None,
) -> transfer_pb2.SessionSnapshot:
    """All of a session that `restore` needs, and what makes it readable."""
    snapshot = transfer_pb2.SessionSnapshot(
        session_id=state.id,
        status=STATUSES[state.status],
        stop_reason=stop_reason,
        title=details.title,
        metadata=details.metadata,
        agent=details.agent,
        environment_id=details.environment_id,
        environment=details.environment,
        threads=[_thread(thread) for thread in threads],
        activity=_activity(state.activity),
        generation=state.generation,
        created_at=timestamp(state.created_at),
        updated_at=timestamp(state.updated_at),
        events=state.head_seq,
        waiting=state.waiting.total,
        resources=details.resources,
        vault_ids=details.vault_ids,
    )
    if state.usage:
        snapshot.usage.ParseFromString(state.usage)
    if state.archived_at is not None:
        snapshot.archived_at.CopyFrom(timestamp(state.archived_at))
    if details.budget is not None:
        snapshot.budget.CopyFrom(budget.message(details.budget))
    if details.origin is not None:
        snapshot.forked_from.session_id = details.origin.session_id
        snapshot.forked_from.seq = details.origin.seq
    return snapshot


def _thread(thread: ThreadState) -> transfer_pb2.ThreadSnapshot:
    snapshot = transfer_pb2.ThreadSnapshot(
        thread_id=thread.id,
        parent_thread_id=thread.parent_thread_id,
        activity=_activity(thread.activity),
        created_at=timestamp(thread.created_at),
        updated_at=timestamp(thread.updated_at),
    )
    if thread.archived_at is not None:
        snapshot.archived_at.CopyFrom(timestamp(thread.archived_at))
    return snapshot


def _activity(activity: Activity) -> transfer_pb2.ActivitySnapshot:
    snapshot = transfer_pb2.ActivitySnapshot(status=STATUSES[activity.status])
    seconds, rest = divmod(activity.active_micros, MICROS)
    snapshot.active_time.CopyFrom(Duration(seconds=seconds, nanos=rest * _NANOS))
    if activity.running_since is not None:
        snapshot.running_since.CopyFrom(timestamp(activity.running_since))
    if activity.ended_at is not None:
        snapshot.ended_at.CopyFrom(timestamp(activity.ended_at))
    return snapshot


def restore(
    snapshot: transfer_pb2.SessionSnapshot, workspace_id: str
) -> tuple[SessionState, SessionDetails, list[ThreadState]]:
    """The session of a snapshot, with an empty log. Raises INVALID_ARGUMENT, naming the field."""
    threads = _threads(snapshot.session_id, snapshot.threads)
    # What was checked when it was first taken is so no more in a file that anyone could write.
    if not snapshot.agent.id.isprintable() or not (snapshot.agent.id and snapshot.agent.model.id):
        raise refuse("session.agent", "the agent has no id that could be one, or no model")
    state = SessionState(
        id=snapshot.session_id,
        workspace_id=workspace_id,
        agent_id=snapshot.agent.id,
        agent_version=snapshot.agent.version,
        primary_thread_id=threads[0].id,
        created_at=micros(snapshot.created_at, "session.created_at"),
        updated_at=micros(snapshot.updated_at, "session.updated_at"),
        activity=_restored_activity(snapshot.activity, "session.activity"),
        generation=snapshot.generation,
        self_hosted=snapshot.environment.HasField("self_hosted"),
    )
    if snapshot.HasField("archived_at"):
        state.archived_at = micros(snapshot.archived_at, "session.archived_at")
        if state.activity.status is not Status.TERMINATED:
            raise refuse("session.archived_at", "an archived session is terminated")
    if snapshot.HasField("usage"):
        state.usage = snapshot.usage.SerializeToString()
    details = SessionDetails(
        environment_id=snapshot.environment_id,
        agent=snapshot.agent,
        environment=snapshot.environment,
        title=snapshot.title if snapshot.HasField("title") else None,
        metadata=dict(snapshot.metadata),
        origin=_origin(snapshot),
        budget=budget.cents(snapshot.budget) if snapshot.HasField("budget") else None,
        resources=given.restore(snapshot.resources, "session.resources"),
        vault_ids=tuple(snapshot.vault_ids),
    )
    kinds.check_environment(details.resources, details.environment)
    return state, details, threads


def _origin(snapshot: transfer_pb2.SessionSnapshot) -> Origin | None:
    if not snapshot.HasField("forked_from"):
        return None
    origin = snapshot.forked_from
    if not origin.session_id or not 0 <= origin.seq <= snapshot.events:
        raise refuse("session.forked_from", "names no session, or a position behind the log")
    return Origin(origin.session_id, origin.seq)


def _threads(
    session_id: str, snapshots: Sequence[transfer_pb2.ThreadSnapshot]
) -> list[ThreadState]:
    ids = {snapshot.thread_id for snapshot in snapshots}
    if len(ids) != len(snapshots):
        raise refuse("session.threads", "two threads have the same id")
    threads: list[ThreadState] = []
    for index, snapshot in enumerate(snapshots):
        path = f"session.threads.{index}"
        child = snapshot.HasField("parent_thread_id")
        if child is not bool(threads):
            raise refuse(path, "the first thread, and no other, is the primary one")
        if child and snapshot.parent_thread_id not in ids - {snapshot.thread_id}:
            raise refuse(f"{path}.parent_thread_id", "the session has no such thread")
        thread = ThreadState(
            id=snapshot.thread_id,
            session_id=session_id,
            created_at=micros(snapshot.created_at, f"{path}.created_at"),
            updated_at=micros(snapshot.updated_at, f"{path}.updated_at"),
            parent_thread_id=snapshot.parent_thread_id if child else None,
            activity=_restored_activity(snapshot.activity, f"{path}.activity"),
        )
        if snapshot.HasField("archived_at"):
            thread.archived_at = micros(snapshot.archived_at, f"{path}.archived_at")
        threads.append(thread)
    return threads


def _restored_activity(snapshot: transfer_pb2.ActivitySnapshot, path: str) -> Activity:
    if snapshot.status not in {int(Status.IDLE), int(Status.TERMINATED)}:
        raise refuse(f"{path}.status", "is neither idle nor terminated")
    time = snapshot.active_time
    if not 0 <= time.seconds <= _MAX_SECONDS or not 0 <= time.nanos < MICROS * _NANOS:
        raise refuse(f"{path}.active_time", "is no time that a session could have run")
    _whole(time.nanos, f"{path}.active_time")
    activity = Activity(
        Status(snapshot.status), active_micros=time.seconds * MICROS + time.nanos // _NANOS
    )
    if snapshot.HasField("running_since"):
        raise refuse(f"{path}.running_since", "what is idle or terminated does not run")
    if snapshot.HasField("ended_at") is not (activity.status is Status.TERMINATED):
        raise refuse(f"{path}.ended_at", "is set for what is terminated, and only then")
    if snapshot.HasField("ended_at"):
        activity.ended_at = micros(snapshot.ended_at, f"{path}.ended_at")
    return activity


def micros(time: Timestamp, path: str) -> int:
    """A time in microseconds since 1970. Raises INVALID_ARGUMENT for one that is finer, or none."""
    if not 0 < time.seconds <= _MAX_SECONDS or not 0 <= time.nanos < MICROS * _NANOS:
        raise refuse(path, "is missing, or no time after 1970")
    _whole(time.nanos, path)
    return time.seconds * MICROS + time.nanos // _NANOS


def _whole(nanos: int, path: str) -> None:
    if nanos % _NANOS:
        raise refuse(path, "is finer than a microsecond")
