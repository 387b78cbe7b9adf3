"""What became of the HTTP requests of one call: the library tells its caller less than we see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.vault_proxy.captured import Captured


class Fault(StrEnum):
    """How a call fails. The words are those of the audit trail."""

    UNREACHABLE = "unreachable"
    """Nobody answers at the server's address."""
    FORBIDDEN = "address_not_allowed"
    """The server's name leads to where nothing may be reached."""
    NOT_ALLOWED = "host_not_allowed"
    """The session's networking does not let it reach the server."""
    UNAUTHENTICATED = "authentication_failed"
    """The server wants another credential than it gets, or the credential cannot be had."""
    NO_TOKEN = "token_endpoint_failed"  # noqa: S105
    """The token endpoint is in trouble."""
    REFUSED = "refused"
    """The server answered with something else than a result: what it was asked, it did not do."""
    GONE = "protocol_session_gone"
    """The server has forgotten the protocol's session: it did not do what it was asked."""
    BROKEN = "broken"
    """The server was asked, and no answer came."""
    UNUSABLE = "answer_unusable"
    """The server answered, and the answer cannot be taken: too large, compressed, no protocol."""


LASTING = frozenset(
    {Fault.UNREACHABLE, Fault.FORBIDDEN, Fault.UNAUTHENTICATED, Fault.NO_TOKEN, Fault.UNUSABLE}
)
"""After one of these nothing more is sent for the same call."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One request's failure. `message` is for people and the model, and names no secret.

    `method` is MCP's. `retry_after` is in seconds, as the server asked for.
    """

    fault: Fault
    message: str
    method: str = ""
    captured: Captured | None = None
    retry_after: float | None = None


class McpError(Exception):
    """A call, or the way to it, failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass
class Exchange:
    """The requests made on behalf of one step: a greeting, a list, a call."""

    sent: bool = False
    """A request may have reached the server."""
    begun: bool = False
    """The server has taken the call: whatever fails from then on does not undo that."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Of the last answer, by MCP method."""
    answered: bool = True
    """The last answer's body came to its end, or the reader had what it wanted of it."""
    failure: Failure | None = None
    requests: int = 0
    taken: int = 0
    """Bytes of answers."""
    objects: int = 0
    events: int = 0
    """Of the streams that were answers."""
    failed: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Done as soon as there is a failure."""

    def fail(self, failure: Failure) -> Failure:
        """Notes a failure; of several that do not last the latest counts.

        Once a call has begun, its answer may still be asked for again (2025-11-25, resumability).
        What comes of that says nothing of the call: only that nobody knows what became of it.
        """
        if self.begun and failure.fault != Fault.UNUSABLE:
            message = f"its answer broke off, and the rest could not be had: {failure.message}"
            failure = replace(failure, fault=Fault.BROKEN, message=message)
        if self.failure is None or self.failure.fault not in LASTING:
            self.failure = failure
        if not self.failed.done():
            self.failed.set_result(None)
        return self.failure

    @property
    def over(self) -> bool:
        """Whether nothing more is to be sent."""
        return self.failure is not None and self.failure.fault in LASTING


_exchange: ContextVar[Exchange | None] = ContextVar("drover_mcp_exchange", default=None)


def current_exchange() -> Exchange:
    """The exchange that the running task's requests belong to."""
    return _exchange.get() or Exchange()


@contextmanager
def exchanging(exchange: Exchange) -> Iterator[Exchange]:
    """Has the requests of its body, and of the tasks that it starts, belong to `exchange`."""
    token = _exchange.set(exchange)
    try:
        yield exchange
    finally:
        _exchange.reset(token)
