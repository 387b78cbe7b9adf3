"""Events as a brain writes them, each with the id that makes its append idempotent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from drover.event.v1.agent_event_pb2 import (
    AgentMcpToolResult,
    AgentThreadContextCompacted,
    AgentToolResult,
)
from drover.event.v1.content_pb2 import ContentBlock, TextBlock
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import (
    RETRY_STATUS_TYPE_EXHAUSTED,
    RETRY_STATUS_TYPE_RETRYING,
    RefusalDetails,
    RetriesExhausted,
    RetryStatus,
    SessionError,
    SessionErrorEvent,
    SessionStatusIdle,
    SessionStatusRescheduled,
    SessionStatusRunning,
    SessionThreadStatusIdle,
    SessionThreadStatusRescheduled,
    SessionThreadStatusRunning,
    SessionUsageEvent,
    StopReason,
)
from drover.event.v1.span_event_pb2 import (
    ModelUsage,
    SpanModelRequestEnd,
    SpanModelRequestStart,
)
from drover.event.v1.user_event_pb2 import UserCustomToolResult, UserToolResult
from services.brain.domain.calls import Answerer
from services.brain.domain.context import OVERFLOW, WITHHELD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.ids import IdSource
    from drover.event.v1.mcp_tool_pb2 import McpListing
    from drover.event.v1.usage_pb2 import Budget, UsageSnapshot
    from services.brain.domain.calls import Call

_LONGEST: Final = 1e9
"""Seconds that a server may ask one to wait for, as far as they are written down."""


def text(value: str) -> ContentBlock:
    """A text block."""
    return ContentBlock(text=TextBlock(text=value))


class EventFactory:
    """Makes the events of one session's primary thread."""

    __slots__ = ("_agent_name", "_ids", "_thread_id")

    def __init__(self, ids: IdSource, thread_id: str, agent_name: str) -> None:
        self._ids = ids
        self._thread_id = thread_id
        self._agent_name = agent_name

    def new_id(self) -> str:
        """An id for an event to come."""
        return self._ids("sevt")

    def running(self) -> list[Event]:
        """The session runs (EVENTS §4, 2)."""
        return [
            Event(id=self.new_id(), session_status_running=SessionStatusRunning()),
            Event(
                id=self.new_id(),
                session_thread_status_running=SessionThreadStatusRunning(
                    session_thread_id=self._thread_id, agent_name=self._agent_name
                ),
            ),
        ]

    def rescheduled(self) -> list[Event]:
        """The session tries again by itself."""
        return [
            Event(id=self.new_id(), session_status_rescheduled=SessionStatusRescheduled()),
            Event(
                id=self.new_id(),
                session_thread_status_rescheduled=SessionThreadStatusRescheduled(
                    session_thread_id=self._thread_id, agent_name=self._agent_name
                ),
            ),
        ]

    def idle(
        self,
        reason: StopReason,
        details: RefusalDetails | None,
        usage: UsageSnapshot,
        budget: Budget | None,
        thread: StopReason | None = None,
    ) -> list[Event]:
        """The turn is over or pauses: thread, usage, session (EVENTS §4, 5).

        `thread` is the thread's reason where it is not the session's.
        """
        return [
            Event(
                id=self.new_id(),
                session_thread_status_idle=SessionThreadStatusIdle(
                    session_thread_id=self._thread_id,
                    agent_name=self._agent_name,
                    stop_reason=thread or reason,
                    stop_details=details,
                ),
            ),
            Event(id=self.new_id(), session_usage=SessionUsageEvent(usage=usage, budget=budget)),
            Event(
                id=self.new_id(),
                session_status_idle=SessionStatusIdle(stop_reason=reason, stop_details=details),
            ),
        ]

    def request_start(self, mcp: McpListing | None = None) -> Event:
        """A model request begins; `mcp` is what is new of the MCP servers that were asked."""
        start = SpanModelRequestStart(mcp=mcp)
        return Event(id=self.new_id(), span_model_request_start=start)

    def request_failed(
        self,
        request: str,
        usage: ModelUsage | None = None,
        *,
        overflow: bool = False,
        withheld: bool = False,
    ) -> Event:
        """The model request `request` ended without a response.

        With `overflow` for its size, with `withheld` for the pictures and documents in it, which
        the model is not shown again.
        """
        return Event(
            id=self.new_id(),
            span_model_request_end=SpanModelRequestEnd(
                model_request_start_id=request,
                model_usage=usage or ModelUsage(),
                is_error=True,
                stop_reason=WITHHELD if withheld else OVERFLOW if overflow else "",
            ),
        )

    def stopped(self, call: Call, words: str) -> Event:
        """The result of a worker's call that was stopped.

        Of the type that workers answer with: by no other do they see that a call is settled, and
        one that finds it open in the history would run it (EVENTS §10).
        """
        said = [text(words)]
        if call.answerer is Answerer.CLIENT and not call.asked:
            custom = UserCustomToolResult(custom_tool_use_id=call.id, content=said, is_error=True)
            return Event(id=self.new_id(), user_custom_tool_result=custom)
        result = UserToolResult(tool_use_id=call.id, content=said, is_error=True)
        return Event(id=self.new_id(), user_tool_result=result)

    def result(
        self, call_id: str, content: Sequence[ContentBlock], *, is_error: bool, mcp: bool = False
    ) -> Event:
        """The result of the call `call_id`, without the empty texts that no log takes.

        `mcp` says that the tool is an MCP server's.
        """
        content = [block for block in content if not block.HasField("text") or block.text.text]
        if mcp:
            of_server = AgentMcpToolResult(mcp_tool_use_id=call_id, content=content)
            of_server.is_error = is_error
            return Event(id=self.new_id(), agent_mcp_tool_result=of_server)
        result = AgentToolResult(tool_use_id=call_id, content=content, is_error=is_error)
        return Event(id=self.new_id(), agent_tool_result=result)

    def compacted(self, summary: str) -> Event:
        """A summary stands for what came before, from the end of the open request on."""
        return Event(
            id=self.new_id(),
            agent_thread_context_compacted=AgentThreadContextCompacted(summary=summary),
        )

    def error(
        self, error: SessionError, *, retrying: bool, retry_after: float | None = None
    ) -> Event:
        """An error, and whether the session goes on by itself; after the time that was asked."""
        stamped = SessionError()
        stamped.CopyFrom(error)
        stamped.retry_status.CopyFrom(
            RetryStatus(
                type=RETRY_STATUS_TYPE_RETRYING if retrying else RETRY_STATUS_TYPE_EXHAUSTED,
                asked_ms=math.ceil(min(retry_after or 0.0, _LONGEST) * 1000),
            )
        )
        return Event(id=self.new_id(), session_error=SessionErrorEvent(error=stamped))

    def aside(self, error: SessionError) -> Event:
        """An error beside the turn, which goes on; what went wrong is tried again in the next."""
        stamped = SessionError()
        stamped.CopyFrom(error)
        again = RetryStatus(type=RETRY_STATUS_TYPE_RETRYING, beside=True)
        stamped.retry_status.CopyFrom(again)
        return Event(id=self.new_id(), session_error=SessionErrorEvent(error=stamped))


def exhausted() -> StopReason:
    """The reason of a turn that was given up."""
    return StopReason(retries_exhausted=RetriesExhausted())
