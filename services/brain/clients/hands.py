"""The hands as the brain sees them: one verdict per call, however often it has to be asked for."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import (
    VERDICT_CANCELLED,
    VERDICT_COMPLETED,
    VERDICT_NOT_RUN,
    VERDICT_OUTCOME_UNKNOWN,
    CancelRequest,
    ExecuteRequest,
    ListToolsRequest,
    ProvisionRequest,
)
from services.brain.clients.failures import translated
from services.brain.domain import briefing, events
from services.brain.domain.calls import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.clock import Clock
    from drover.environment.v1.environment_pb2 import EnvironmentConfig
    from drover.event.v1.content_pb2 import ContentBlock
    from drover.event.v1.session_event_pb2 import SessionError
    from drover.hands.v1.hands_service_pb2 import ExecuteResponse, McpServerOutcome
    from drover.hands.v1.hands_service_pb2_grpc import HandsServiceAsyncStub
    from drover.hands.v1.mounts_pb2 import Mounts
    from services.brain.domain.calls import Call

DEFAULT_DEADLINE: Final = 150.0
"""Outer limit of a call in seconds (SEMANTICS §1)."""

_LONGEST_COMMAND: Final = 3600.0
"""Seconds that the hands give a command at the most; they refuse one that asks for more."""

_MARGIN: Final = 30.0
_CANCEL_DEADLINE: Final = 5.0
_PROVISION_DEADLINE: Final = 60.0
_LIST_DEADLINE: Final = 15.0
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4)
_LONGEST_PAUSE: Final = 1.0

# The hands did not have their say: the same call id may be asked for again.
_RETRIED: Final = frozenset(
    {
        Reason.UNAVAILABLE,
        Reason.RESOURCE_EXHAUSTED,
        Reason.RATE_LIMITED,
        Reason.CANCELLED,
        Reason.INTERNAL,
    }
)

UNKNOWN_OUTCOME: Final = (
    "The outcome of this call is unknown: what it did, if anything, could not be found out. "
    "It was not run again. Check the state of things before you repeat it."
)
TIMED_OUT: Final = "The call did not end within {seconds:.0f} s and was stopped. " + UNKNOWN_OUTCOME

_log = structlog.get_logger("brain.hands")


class WarmHands:
    """The sessions whose sandbox has answered lately: to ask for it again would be for nothing.

    Hands keep an idle sandbox for minutes; one that is gone all the same is made by the call.
    """

    def __init__(self, clock: Clock, *, seconds: float = 60.0, entries: int = 10_000) -> None:
        self._clock = clock
        self._seconds = seconds
        self._entries = entries
        self._answered: OrderedDict[str, float] = OrderedDict()

    def note(self, session_id: str) -> None:
        """The session's sandbox has answered just now."""
        self._answered.pop(session_id, None)
        self._answered[session_id] = self._clock.monotonic()
        if len(self._answered) > self._entries:
            self._answered.popitem(last=False)

    def knows(self, session_id: str) -> bool:
        """Whether the session's sandbox has answered lately."""
        at = self._answered.get(session_id)
        return at is not None and self._clock.monotonic() - at < self._seconds


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What the model is told of a call, and people of what went wrong beside it."""

    content: Sequence[ContentBlock]
    is_error: bool
    cancelled: bool = False
    errors: Sequence[SessionError] = ()


class Hands(Protocol):
    """All that a brain can do to the world, within one lease of one session."""

    def bring(self, mounts: Mounts | None) -> None:
        """From now on `mounts` are brought into the session's sandbox."""
        ...

    async def provision(self) -> Sequence[SessionError]:
        """Has the session's sandbox made ready; a failure is left to the first call to meet.

        Answers what went wrong beside.
        """
        ...

    async def list_tools(self, servers: Sequence[str]) -> list[McpServerOutcome]:
        """What MCP servers offer. One that is not among the answers could not be asked."""
        ...

    async def execute(self, call: Call) -> ToolOutcome:
        """Runs `call` once and answers its outcome. Raises `DroverError` (LEASE_LOST)."""
        ...

    async def cancel(self, call_ids: Sequence[str]) -> None:
        """Stops calls, or has them never start. Raises `DroverError` (LEASE_LOST)."""
        ...


class GrpcHands:
    """The hands service, called under a lease's generation."""

    def __init__(
        self,
        stub: HandsServiceAsyncStub,
        clock: Clock,
        warm: WarmHands,
        *,
        session_id: str,
        generation: int,
        environment: EnvironmentConfig | None,
        mounts: Mounts | None = None,
    ) -> None:
        self._stub = stub
        self._clock = clock
        self._warm = warm
        self._session_id = session_id
        self._generation = generation
        self._environment = environment
        self._mounts = mounts

    def bring(self, mounts: Mounts | None) -> None:
        """From now on `mounts` are brought into the session's sandbox."""
        self._mounts = mounts

    async def provision(self) -> Sequence[SessionError]:
        """Has the session's sandbox made ready; a failure is left to the first call to meet."""
        if self._warm.knows(self._session_id):
            return ()
        request = ProvisionRequest(
            session_id=self._session_id,
            generation=self._generation,
            environment=self._environment,
            mounts=self._mounts,
        )
        try:
            with translated("the hands service"):
                response = await self._stub.Provision(request, timeout=_PROVISION_DEADLINE)
        except DroverError as error:
            _log.info("provision_failed", reason=error.reason)
            return ()
        return response.errors

    async def list_tools(self, servers: Sequence[str]) -> list[McpServerOutcome]:
        """What MCP servers offer. One that is not among the answers could not be asked."""
        request = ListToolsRequest(
            session_id=self._session_id, generation=self._generation, mcp_server_names=servers
        )
        deadline = self._clock.monotonic() + _LIST_DEADLINE
        attempt = 0
        while (remaining := deadline - self._clock.monotonic()) > 0:
            try:
                with translated("the hands service"):
                    response = await self._stub.ListTools(request, timeout=remaining)
            except DroverError as error:
                if error.reason is Reason.LEASE_LOST:
                    raise
                _log.warning("tools_not_listed", reason=error.reason)
                if error.reason not in _RETRIED:
                    break
                await asyncio.sleep(min(error.retry_after or _pause(attempt), remaining))
                attempt += 1
            else:
                return list(response.servers)
        return []

    async def execute(self, call: Call) -> ToolOutcome:
        """Runs `call` once, asking again under the same id while the hands are away."""
        request = ExecuteRequest(
            session_id=self._session_id,
            call_id=call.id,
            generation=self._generation,
            name=call.tool or call.name,
            input=call.arguments,
            environment=self._environment,
            mcp_server_name=call.server,
            web=call.web,
            mounts=self._mounts,
        )
        limit = time_limit(call)
        deadline = self._clock.monotonic() + limit
        attempt = 0
        while True:
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                return _failed(UNKNOWN_OUTCOME)
            try:
                with translated("the hands service"):
                    response = await self._stub.Execute(request, timeout=remaining)
            except DroverError as error:
                if error.reason is Reason.LEASE_LOST:
                    raise
                if error.reason is Reason.DEADLINE_EXCEEDED:
                    await self.cancel([call.id])
                    return _failed(TIMED_OUT.format(seconds=limit))
                if error.reason not in _RETRIED:
                    return _failed(f"The call was refused and nothing was run: {error.message}")
                _log.info("execute_retried", call_id=call.id, reason=error.reason)
                pause = error.retry_after or _pause(attempt)
            else:
                sandboxed = not (call.server or call.web)
                # What went wrong beside is tried again when the sandbox is next asked for.
                if sandboxed and response.verdict == VERDICT_COMPLETED and not response.errors:
                    self._warm.note(self._session_id)
                return _outcome(response)
            await asyncio.sleep(min(pause, remaining))
            attempt += 1

    async def cancel(self, call_ids: Sequence[str]) -> None:
        """Stops calls. Hands that cannot be reached for 5 s have no sandbox left to stop."""
        request = CancelRequest(
            session_id=self._session_id, generation=self._generation, call_ids=call_ids
        )
        deadline = self._clock.monotonic() + _CANCEL_DEADLINE
        attempt = 0
        while (remaining := deadline - self._clock.monotonic()) > 0:
            try:
                with translated("the hands service"):
                    await self._stub.Cancel(request, timeout=remaining)
            except DroverError as error:
                if error.reason is Reason.LEASE_LOST:
                    raise
                if error.reason not in _RETRIED:
                    break
                await asyncio.sleep(_pause(attempt))
                attempt += 1
            else:
                return
        _log.warning("cancel_failed", call_ids=list(call_ids))


def time_limit(call: Call) -> float:
    """Seconds that a call may take in all: what it asks for itself, and a margin."""
    if call.server or call.name != "bash" or "timeout_ms" not in call.arguments:
        return DEFAULT_DEADLINE
    try:
        arguments: Any = json.loads(call.arguments)
    except RecursionError:  # how deep one may nest depends on who reads it
        return DEFAULT_DEADLINE
    asked = arguments.get("timeout_ms")
    if isinstance(asked, bool) or not isinstance(asked, int | float):
        return DEFAULT_DEADLINE
    # First bounded, then divided: JSON's numbers have no end.
    return max(DEFAULT_DEADLINE, min(asked, _LONGEST_COMMAND * 1000) / 1000 + _MARGIN)


def _pause(attempt: int) -> float:
    return _PAUSES[attempt] if attempt < len(_PAUSES) else _LONGEST_PAUSE


def _failed(message: str) -> ToolOutcome:
    return ToolOutcome((events.text(message),), is_error=True)


def _outcome(response: ExecuteResponse) -> ToolOutcome:
    said: Sequence[ContentBlock]
    content, errors = response.content, response.errors
    told = briefing.found(response.found_skills)
    found = (events.text(told),) if told else ()
    match response.verdict:
        case v if v == VERDICT_CANCELLED:
            # What was found is told once, with whichever result.
            said = (events.text(INTERRUPTED), *found)
            return ToolOutcome(said, is_error=True, cancelled=True, errors=errors)
        case v if v == VERDICT_OUTCOME_UNKNOWN:
            said = (events.text(UNKNOWN_OUTCOME), *content, *found)
            return ToolOutcome(said, is_error=True, errors=errors)
        case v if v == VERDICT_NOT_RUN:
            return ToolOutcome((*content, *found), is_error=True, errors=errors)
        case _:
            said = (*content, *found)
            return ToolOutcome(said, is_error=response.is_error, errors=errors)
