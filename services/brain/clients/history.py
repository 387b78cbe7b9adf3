"""The session's own log, read for the model. Nothing of another session or thread can be reached.

The model names events and positions; the session and the thread are those of the lease.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from drover.session.v1.session_service_pb2 import GetEventsRequest
from services.brain.clients.failures import translated
from services.brain.clients.hands import ToolOutcome
from services.brain.domain import events, history

if TYPE_CHECKING:
    from chassis.clock import Clock
    from drover.session.v1.session_service_pb2 import GetEventsResponse
    from drover.session.v1.session_service_pb2_grpc import SessionServiceAsyncStub
    from services.brain.domain.calls import Call
    from services.brain.domain.history import Query

DEADLINE: Final = 30.0
"""Seconds that one look may take in all."""

MAX_LOOKED_AT: Final = 20_000
"""Events that one search goes through."""

_PAGE: Final = 200
_PAUSE: Final = 0.2
_MARGIN: Final = 5.0

_log = structlog.get_logger("brain.history")


class History(Protocol):
    """What a session's model may read of its own log."""

    async def execute(self, call: Call) -> ToolOutcome:
        """What `call` asks for, or why there is no answer."""
        ...


class LogHistory:
    """Answers calls of `session_history` for one session."""

    def __init__(
        self, stub: SessionServiceAsyncStub, clock: Clock, *, session_id: str, thread_id: str
    ) -> None:
        self._stub = stub
        self._clock = clock
        self._session_id = session_id
        self._thread_id = thread_id

    async def execute(self, call: Call) -> ToolOutcome:
        """What `call` asks for, or why there is no answer."""
        try:
            query = history.parse(call.arguments)
            text = await self._answer(query)
        except history.QueryError as error:
            return ToolOutcome((events.text(str(error)),), is_error=True)
        except DroverError as error:
            if error.reason in (Reason.NOT_FOUND, Reason.INVALID_ARGUMENT):
                missing = f"There is no event {query.event_id} in this session's log."
                return ToolOutcome((events.text(missing),), is_error=True)
            _log.warning("history_failed", reason=error.reason)
            failed = f"The log could not be read: {error.message}"
            return ToolOutcome((events.text(failed),), is_error=True)
        return ToolOutcome((events.text(text),), is_error=False)

    async def _answer(self, query: Query) -> str:
        deadline = self._clock.monotonic() + DEADLINE
        if query.event_id:
            return await self._around(query, deadline)
        return await self._on(query, deadline)

    async def _around(self, query: Query, deadline: float) -> str:
        page = await self._read(
            deadline,
            around_event_id=query.event_id,
            events_before=query.before,
            events_after=query.after,
        )
        neighbours = max(1, len(page.data) - 1)
        room = history.MAX_OUTPUT // 2 if len(page.data) > 1 else history.MAX_OUTPUT
        lines, hint = [], ""
        for event in page.data:
            if event.id == query.event_id:
                line, hint = history.whole(event, query, room)
            else:
                line = history.line(event, min(history.MAX_TEXT, room // neighbours))
            lines.append(line)
        if not any(event.id == query.event_id for event in page.data):
            raise history.QueryError(f"{query.event_id} is no event that can be shown.")
        return history.answer(lines, hint)

    async def _on(self, query: Query, deadline: float) -> str:
        lines: list[str] = []
        at, room, looked_at = query.from_seq, history.MAX_OUTPUT, 0
        cursor = ""
        # A search that takes too long says how far it came.
        while looked_at < MAX_LOOKED_AT and self._clock.monotonic() < deadline - _MARGIN:
            page = await self._read(
                deadline, after_seq=query.from_seq - 1, limit=_PAGE, page=cursor or None
            )
            for event in page.data:
                line = history.found(event, query.text) if query.text else history.line(event)
                if line is not None:
                    room -= history.size(line)
                    if lines and (room < 0 or len(lines) == query.count):
                        return history.answer(lines, _further(query, event.seq))
                    lines.append(line)
                at = event.seq + 1
                looked_at += 1
            cursor = page.next_page
            if not cursor:
                return history.answer(lines, _end(query, found=bool(lines)))
        return history.answer(lines, _further(query, at))

    async def _read(self, deadline: float, **where: Any) -> GetEventsResponse:  # noqa: ANN401
        request = GetEventsRequest(
            session_id=self._session_id, thread_id=self._thread_id, types=history.TYPES, **where
        )
        while True:
            remaining = deadline - self._clock.monotonic()
            try:
                with translated("the session service"):
                    return await self._stub.GetEvents(request, timeout=max(0.001, remaining))
            except DroverError as error:
                if error.reason is not Reason.UNAVAILABLE or remaining <= _PAUSE:
                    raise
            await asyncio.sleep(_PAUSE)


def _further(query: Query, seq: int) -> str:
    searched = f', "text": {history.quoted(query.text)}' if query.text else ""
    return f'There may be more: {{"from_seq": {seq}{searched}}}'


def _end(query: Query, *, found: bool) -> str:
    if query.text and not found:
        return f"Nothing from position {query.from_seq} on holds this text."
    return "That is the end of the log." if found else "There is nothing at or behind it."
