"""Forking a session at an event: the same log up to there, and a clean end behind it.

What was under way at that place has no future in the copy: a model request without an end is ended
as a brain does that finds one, calls without a result get one that says so, and the turn is over.
So the next message begins a turn of its own, on a history that every model takes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from drover.agent.v1 import agent_pb2
from drover.event.v1 import (
    agent_event_pb2,
    content_pb2,
    event_pb2,
    session_event_pb2,
    span_event_pb2,
    usage_pb2,
    user_event_pb2,
)
from services.session.domain import event as events_of
from services.session.domain import lifecycle, log, session
from services.session.domain.accept import EVENT_PREFIX
from services.session.domain.admission import refuse
from services.session.domain.copies import Stretch
from services.session.domain.event import FOR_WORKER
from services.session.domain.ports import CallState, LogQuery
from services.session.domain.resources import files
from services.session.domain.session import (
    Activity,
    Origin,
    SessionDetails,
    SessionState,
    Status,
    Stop,
    ThreadState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chassis.ids import IdSource
    from services.session.domain.copies import CopyTransaction
    from services.session.domain.ports import Call, Transaction
    from services.session.domain.session import SessionRef

FORKED: Final = (
    "The session was forked at this point, before the tool call had a result. Call the tool again "
    "if its result is needed."
)
"""The result of a call that was open where the session was forked."""

_STATUSES: Final = (
    "session.status_running",
    "session.status_idle",
    "session.status_rescheduled",
    "session.status_terminated",
)
_INPUTS: Final = (
    "user.message",
    "user.interrupt",
    "user.tool_confirmation",
    "user.custom_tool_result",
    "user.tool_result",
    "user.define_outcome",
)
"""What begins a turn. A `system.message` is said along with one, or begins none."""

_SPANS: Final = ("span.model_request_start", "span.model_request_end")
_REST: Final = frozenset({Stop.END_TURN, Stop.RETRIES_EXHAUSTED, Stop.REFUSAL})
"""The stops after which the next message begins a new turn."""

_ONE: Final = 1
_PAGE: Final = 100
_NO_MATTER_HOW_LARGE: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork as it was planned: the new session, and how much of which log it gets.

    `threads` are the new session's, `renamed` gives their ids by those of the source. `requests`
    are the model requests that have no end by then, the innermost first. `at_rest` says that no
    turn is under way there. `copies` are to be made of the source's files, before it is begun.
    """

    source: SessionRef
    state: SessionState
    details: SessionDetails
    threads: list[ThreadState]
    renamed: Mapping[str, str]
    requests: tuple[str, ...]
    at_rest: bool
    copies: tuple[files.Copy, ...] = ()

    @property
    def upto(self) -> int:
        """The last position that is copied."""
        return self.state.head_seq


def plan(tx: Transaction, ref: SessionRef, event_id: str | None, ids: IdSource) -> Fork:
    """What a fork at an event is made of; at the log's end when none is named.

    Raises NOT_FOUND, and INVALID_ARGUMENT for an event that has no place in the session's log.
    """
    snapshot = lifecycle.read(tx, ref)
    source, now = snapshot.state, snapshot.now
    upto = source.head_seq if event_id is None else _position(tx, ref, event_id)
    reader = _Reader(tx, ref.session_id, _without_its_end(tx, source, upto))
    last = reader.at_end()
    agent = reader.agent() or snapshot.details.agent
    status, stop = reader.status()
    requests = reader.open_requests()
    renamed: dict[str, str] = {}
    threads = []
    state = SessionState(
        id=ids("sesn"),
        workspace_id=source.workspace_id,
        agent_id=agent.id,
        agent_version=agent.version,
        primary_thread_id=ids("sthr"),
        created_at=now,
        updated_at=now,
        stop=stop,
        head_seq=reader.upto,
        head_at=0 if last is None else log.micros_of(last),
        self_hosted=source.self_hosted,
    )
    for thread in tx.threads(ref.session_id):
        primary = thread.parent_thread_id is None
        if primary or thread.created_at <= state.head_at:
            renamed[thread.id] = state.primary_thread_id if primary else ids("sthr")
            threads.append(_thread(thread, state.id, renamed, now))
    resources, copies = files.copied(snapshot.details.resources, ids)
    return Fork(
        source=ref,
        state=state,
        details=dataclasses.replace(
            snapshot.details,
            agent=agent,
            origin=Origin(ref.session_id, reader.upto),
            resources=resources,
        ),
        threads=threads,
        renamed=renamed,
        requests=requests,
        at_rest=status is Status.IDLE and not requests,
        copies=copies,
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fork is: the position that is copied, and the new session once it is whole."""

    at: int
    state: SessionState | None = None


def advance(tx: CopyTransaction, fork: Fork, at: int, ids: IdSource) -> Progress:
    """Copies the next piece of the log behind a position; with the last one the fork is whole."""
    if at < fork.upto:
        stretch = Stretch(fork.source.session_id, fork.state.id, at, fork.upto, fork.renamed)
        at = tx.copy(stretch)
    return Progress(at, _conclude(tx, fork, ids) if at == fork.upto else None)


def _conclude(tx: CopyTransaction, fork: Fork, ids: IdSource) -> SessionState:
    """Ends what was under way at the fork, and shows the new session."""
    state, now = fork.state.copy(), tx.now()
    unfinished = tx.unfinished_calls(state.id)
    # The end first: what follows it is no part of the response that the model had begun.
    closing = [_request_end(request) for request in fork.requests]
    closed = []
    for call, opened_by in unfinished:
        result = _result(call, opened_by)
        result.id = ids(EVENT_PREFIX)
        closing.append(result)
        closed.append(dataclasses.replace(call, state=CallState.CLOSED, result_id=result.id))
    if closing or not fork.at_rest:
        closing += _idle(state.primary_thread_id, fork.details.agent.name)
        state.stop = Stop.END_TURN
    entries = []
    for event in closing:
        event.id = event.id or ids(EVENT_PREFIX)
        entries.append(log.stamp(state, event, events_of.event_type(event), now))
    if entries:
        tx.append(state.id, entries)
    if closed:
        tx.save_calls(state.id, closed)
    if fork.copies:
        tx.keep_files(state.ref)
    tx.publish(state)
    return state


def _position(tx: Transaction, ref: SessionRef, event_id: str) -> int:
    event = tx.find(ref.session_id, [event_id]).get(event_id)
    if event is None:
        raise refuse("event_id", "the session's log has no such event")
    if not event.seq:
        raise refuse("event_id", "the event waits in the inbox: it has no place in the log yet")
    return event.seq


def _without_its_end(tx: Transaction, source: SessionState, upto: int) -> int:
    """The position before the events that ended the session: a fork is not at its end."""
    if source.activity.status is not Status.TERMINATED:
        return upto
    before, ends = upto, False
    query = LogQuery(0, upto, _PAGE, _NO_MATTER_HOW_LARGE, descending=True)
    for event in tx.log(source.id, query)[0]:
        ended = event.session_thread_status_terminated.session_thread_id
        if event.HasField("session_status_terminated") or ended == source.primary_thread_id:
            ends = True
        elif not ended:
            break
        before = event.seq - 1
    return before if ends else upto


def _thread(
    thread: ThreadState, session_id: str, renamed: Mapping[str, str], now: int
) -> ThreadState:
    parent = thread.parent_thread_id
    ended = parent is not None and thread.activity.status is Status.TERMINATED
    return ThreadState(
        id=renamed[thread.id],
        session_id=session_id,
        created_at=now if parent is None else thread.created_at,
        updated_at=now if parent is None else thread.updated_at,
        parent_thread_id=None if parent is None else renamed.get(parent, parent),
        archived_at=thread.archived_at if ended else None,
        activity=Activity(Status.TERMINATED, ended_at=thread.activity.ended_at)
        if ended
        else Activity(),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads what a log says at one of its positions, wherever in it that lies."""

    tx: Transaction
    session_id: str
    upto: int

    def _backwards(self, *types: str, limit: int = _ONE) -> Iterator[event_pb2.Event]:
        upto, more = self.upto, True
        while more:
            query = LogQuery(0, upto, limit, _NO_MATTER_HOW_LARGE, descending=True, types=types)
            events, more = self.tx.log(self.session_id, query)
            yield from events
            upto = events[-1].seq - 1 if events else 0

    def at_end(self) -> event_pb2.Event | None:
        """The last event that counts."""
        return next(self._backwards(), None)

    def status(self) -> tuple[Status, Stop]:
        """The status there and the last stop; running, too, where input has begun a turn."""
        last = next(self._backwards(*_STATUSES), None)
        given = next(self._backwards(*_INPUTS), None)
        status, stop = Status.IDLE, Stop.NONE
        if last is not None:
            status = session.status_of(events_of.variant(last)) or status
            if (idle := next(self._backwards("session.status_idle"), None)) is not None:
                stop = session.stop_of(idle.session_status_idle.stop_reason)
        begun = given is not None and given.seq > (last.seq if last is not None else 0)
        if begun or (last is not None and stop not in _REST):
            status = Status.RUNNING
        return status, stop

    def open_requests(self) -> tuple[str, ...]:
        """The model requests that have not ended, the last one first.

        That is at most one, and one that judges its calls: three events tell.
        """
        spans = [*islice(self._backwards(*_SPANS, limit=3), 3)]
        ended = {event.span_model_request_end.model_request_start_id for event in spans}
        starts = [event.id for event in spans if event.HasField("span_model_request_start")]
        return tuple(start for start in starts if start not in ended)

    def agent(self) -> agent_pb2.SessionAgent | None:
        """The agent as the last update before that left it; `None` if none changed it."""
        for event in self._backwards("session.updated", limit=_PAGE):
            if event.session_updated.HasField("agent"):
                return event.session_updated.agent
        return None


def _request_end(request: str) -> event_pb2.Event:
    return event_pb2.Event(
        span_model_request_end=span_event_pb2.SpanModelRequestEnd(
            model_request_start_id=request, model_usage=span_event_pb2.ModelUsage(), is_error=True
        )
    )


def _result(call: Call, opened_by: str) -> event_pb2.Event:
    said = [content_pb2.ContentBlock(text=content_pb2.TextBlock(text=FORKED))]
    if opened_by == "agent.custom_tool_use":
        answer = user_event_pb2.UserCustomToolResult(
            custom_tool_use_id=call.id, content=said, is_error=True
        )
        return event_pb2.Event(user_custom_tool_result=answer)
    if call.kind in FOR_WORKER:
        worked = user_event_pb2.UserToolResult(tool_use_id=call.id, content=said, is_error=True)
        return event_pb2.Event(user_tool_result=worked)
    if opened_by == "agent.mcp_tool_use":
        mcp = agent_event_pb2.AgentMcpToolResult(
            mcp_tool_use_id=call.id, content=said, is_error=True
        )
        return event_pb2.Event(agent_mcp_tool_result=mcp)
    result = agent_event_pb2.AgentToolResult(tool_use_id=call.id, content=said, is_error=True)
    return event_pb2.Event(agent_tool_result=result)


def _idle(thread_id: str, agent_name: str) -> list[event_pb2.Event]:
    """The end of a turn in its usual order (EVENTS §4): thread, usage, session."""
    reason = session_event_pb2.StopReason(end_turn=session_event_pb2.EndTurn())
    nothing = usage_pb2.UsageSnapshot(
        input_tokens=0,
        output_tokens=0,
        cache_read_input_tokens=0,
        cache_creation=usage_pb2.CacheCreationUsage(
            ephemeral_5m_input_tokens=0, ephemeral_1h_input_tokens=0
        ),
        server_tool_use=usage_pb2.ServerToolUsage(web_search_requests=0, web_fetch_requests=0),
        active_seconds=0,
    )
    return [
        event_pb2.Event(
            session_thread_status_idle=session_event_pb2.SessionThreadStatusIdle(
                session_thread_id=thread_id, agent_name=agent_name, stop_reason=reason
            )
        ),
        event_pb2.Event(session_usage=session_event_pb2.SessionUsageEvent(usage=nothing)),
        event_pb2.Event(
            session_status_idle=session_event_pb2.SessionStatusIdle(stop_reason=reason)
        ),
    ]
