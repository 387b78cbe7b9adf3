"""Calls of the web tools. They only read: one whose end nobody saw is run once more (case F4)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import VERDICT_COMPLETED, ExecuteResponse
from services.hands.domain import execution
from services.hands.under_way import Stopped, unless_stopped

if TYPE_CHECKING:
    from chassis.clock import Clock
    from chassis.secret import Secret
    from drover.vault.v1.credential_proxy_service_pb2 import FetchResponse, SearchResponse
    from services.hands.domain.web import WebCall
    from services.hands.remote.granted import RemoteGrants
    from services.hands.under_way import Execution

_AGAIN: Final = frozenset({Reason.UNAVAILABLE, Reason.RESOURCE_EXHAUSTED, Reason.RATE_LIMITED})
"""Whoever asks for the call asks again: nothing was read that anybody saw."""

_log = structlog.get_logger("hands.web")


class Proxy(Protocol):
    """The vault proxy, as far as the web goes."""

    async def ask(
        self, grant: Secret, call_id: str, call: WebCall
    ) -> FetchResponse | SearchResponse:
        """The answer to a call. Raises `DroverError`."""
        ...


class WebPages:
    """The web tools of all sessions."""

    def __init__(self, proxy: Proxy, grants: RemoteGrants, clock: Clock) -> None:
        self._proxy = proxy
        self._grants = grants
        self._clock = clock

    async def run(self, session_id: str, under_way: Execution, call: WebCall) -> ExecuteResponse:
        """What the web has to say. Raises `DroverError` for what may be asked again."""
        begun = self._clock.monotonic()
        asked = self._grants.use(
            session_id, lambda grant: self._proxy.ask(grant, under_way.call_id, call)
        )
        try:
            answer = await unless_stopped(under_way, asked)
        except Stopped:
            return execution.cancelled()
        except DroverError as error:
            if error.reason in _AGAIN:
                raise
            _log.warning("web_call_failed", tool=call.tool, reason=error.reason)
            late = error.reason is Reason.DEADLINE_EXCEEDED
            why = "It was not answered in time." if late else f"{error.message}."
            return execution.not_run(f"{call.tool} failed: unavailable. {why}")
        result = ExecuteResponse(
            content=answer.content, is_error=answer.is_error, verdict=VERDICT_COMPLETED
        )
        result.duration.FromTimedelta(timedelta(seconds=self._clock.monotonic() - begun))
        return result
