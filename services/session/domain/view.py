"""Sessions and threads as they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drover.agent.v1 import agent_pb2
from drover.event.v1 import usage_pb2
from drover.session.v1 import session_pb2 as pb
from services.session.domain import budget
from services.session.domain.log import timestamp
from services.session.domain.session import MICROS, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.session.domain.lifecycle import Snapshot
    from services.session.domain.session import Activity, SessionDetails, SessionState, ThreadState


def session(snapshot: Snapshot) -> pb.Session:
    """The session as it is at the snapshot's time."""
    state, details, now = snapshot.state, snapshot.details, snapshot.now
    view = pb.Session(
        id=state.id,
        agent=details.agent,
        environment_id=details.environment_id,
        environment=details.environment,
        status=STATUSES[state.status],
        title=details.title,
        metadata=details.metadata,
        stats=pb.SessionStats(
            active_seconds=state.activity.active_seconds(now),
            duration_seconds=_duration(state.activity, state.created_at, now),
        ),
        usage=_usage(state, now),
        created_at=timestamp(state.created_at),
        updated_at=timestamp(state.updated_at),
        primary_thread_id=state.primary_thread_id,
        resources=details.resources,
        vault_ids=details.vault_ids,
    )
    if details.budget is not None:
        view.budget.CopyFrom(budget.message(details.budget))
    if details.origin is not None:
        view.forked_from.session_id = details.origin.session_id
        view.forked_from.seq = details.origin.seq
    if state.archived_at is not None:
        view.archived_at.CopyFrom(timestamp(state.archived_at))
    return view


def thread(one: ThreadState, state: SessionState, details: SessionDetails, now: int) -> pb.Thread:
    """A thread as it is now. Its stats are unset until its first transition, its usage until the
    first append that brought some (EVENTS §11).
    """
    view = pb.Thread(
        id=one.id,
        session_id=one.session_id,
        parent_thread_id=one.parent_thread_id,
        agent=_thread_agent(details.agent),
        status=STATUSES[thread_status(one, state)],
        created_at=timestamp(one.created_at),
        updated_at=timestamp(one.updated_at),
    )
    if one.updated_at > one.created_at:
        view.stats.active_seconds = one.activity.active_seconds(now)
        view.stats.duration_seconds = _duration(one.activity, one.created_at, now)
    if one.parent_thread_id is None and state.usage:
        view.usage.CopyFrom(_thread_usage(one, state, now))
    if one.archived_at is not None:
        view.archived_at.CopyFrom(timestamp(one.archived_at))
    return view


def thread_status(one: ThreadState, state: SessionState) -> Status:
    """The status of a thread that clients see: the primary one's is the session's."""
    return state.status if one.id == state.primary_thread_id else one.activity.status


def _thread_agent(agent: agent_pb2.SessionAgent) -> agent_pb2.ThreadAgent:
    return agent_pb2.ThreadAgent(
        id=agent.id,
        version=agent.version,
        name=agent.name,
        description=agent.description if agent.HasField("description") else None,
        model=agent.model if agent.HasField("model") else None,
        system=agent.system if agent.HasField("system") else None,
        tools=agent.tools,
        mcp_servers=agent.mcp_servers,
        skills=agent.skills,
        execution_identity=(
            agent.execution_identity if agent.HasField("execution_identity") else None
        ),
    )


STATUSES: Mapping[Status, pb.SessionStatus.ValueType] = {
    Status.IDLE: pb.SESSION_STATUS_IDLE,
    Status.RUNNING: pb.SESSION_STATUS_RUNNING,
    Status.RESCHEDULING: pb.SESSION_STATUS_RESCHEDULING,
    Status.TERMINATED: pb.SESSION_STATUS_TERMINATED,
}


def _duration(activity: Activity, created_at: int, now: int) -> float:
    end = now if activity.ended_at is None else activity.ended_at
    return max(0, end - created_at) / MICROS


def _thread_usage(one: ThreadState, state: SessionState, now: int) -> usage_pb2.UsageSnapshot:
    """What the primary thread has used. The session's running time is in no thread's cost."""
    usage = _usage(state, now)
    usage.active_seconds = one.activity.active_seconds(now)
    usage.ClearField("list_cost")
    if usage.HasField("exact_token_cost"):
        usage.list_cost.CopyFrom(budget.money(usage.exact_token_cost))
    usage.ClearField("exact_list_cost")
    return usage


def _usage(state: SessionState, now: int) -> usage_pb2.UsageSnapshot:
    usage = usage_pb2.UsageSnapshot.FromString(state.usage)
    usage.active_seconds = state.activity.active_seconds(now)
    return usage
