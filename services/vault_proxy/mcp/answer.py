"""Answers of MCP servers as the library gets to see them: bounded, or an error in their place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx2

from services.vault_proxy.captured import captured
from services.vault_proxy.mcp.exchange import Exchange, Failure, Fault

if TYPE_CHECKING:
    from chassis.secret import Secret
    from services.vault_proxy.domain.ports import Stream
    from services.vault_proxy.mcp.limits import Limits

UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Errors after which it is certain that the server heard nothing."""


_BLANK_LINES: Final = (b"\n\n", b"\n\r\n", b"\r\r")
"""What ends an event."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: what it is part of, and its MCP method."""

    exchange: Exchange
    method: str
    limits: Limits

    def fail(self, fault: Fault, message: str) -> Failure:
        """Notes how it failed."""
        return self.exchange.fail(Failure(fault, message, self.method))


class Watched(httpx2.AsyncByteStream):
    """An answer's bytes. They end early where they are too many, or where they break off.

    Counted is what all answers of the exchange have together: pages and rounds are no way around.
    """

    def __init__(
        self,
        response: httpx2.Response,
        asked: Asked,
        striking: Stream,
        *,
        standing: bool,
    ) -> None:
        limits = asked.limits
        self._response = response
        self._asked = asked
        self._striking = striking
        self._most_bytes = limits.stream_bytes if standing else limits.answer_bytes
        self._most_objects = limits.objects * (4 if standing else 1)
        self._most_events = limits.events
        self._events = response.headers.get("content-type", "").startswith("text/event-stream")
        self._end = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.aiter_raw():
                if self._too_much(piece):
                    return
                if struck := self._striking.feed(piece):
                    yield struck
            if rest := self._striking.finish():
                yield rest
        except httpx2.TransportError as error:
            self._asked.exchange.fail(lost(error, self._asked))
            return
        # A reader of events that had its answer would have left before the end.
        self._asked.exchange.answered = not self._events

    async def aclose(self) -> None:
        """Closes the answer."""
        await self._response.aclose()

    def _too_much(self, piece: bytes) -> bool:
        exchange = self._asked.exchange
        exchange.taken += len(piece)
        if exchange.taken > self._most_bytes:
            message = f"the server's answer is larger than {self._most_bytes >> 20} MiB"
            self._asked.fail(Fault.UNUSABLE, message)
            return True
        exchange.objects += piece.count(b"{") + piece.count(b"[")
        if exchange.objects > self._most_objects:
            message = f"the server's answer has more than {self._most_objects:,} objects and lists"
            self._asked.fail(Fault.UNUSABLE, message)
            return True
        if self._events:
            seen = self._end + piece
            exchange.events += sum(map(seen.count, _BLANK_LINES))
            self._end = seen[-1:]
            if exchange.events > self._most_events:
                message = f"the server's answer has more than {self._most_events:,} events"
                self._asked.fail(Fault.UNUSABLE, message)
                return True
        return False


def lost(error: httpx2.TransportError, asked: Asked) -> Failure:
    """What a connection's failure means. Anything but a failure to connect may have been heard."""
    if isinstance(error, UNSENT):
        return Failure(Fault.UNREACHABLE, f"the server cannot be reached: {error}", asked.method)
    if isinstance(error, httpx2.TimeoutException):
        message = f"the server said nothing for {asked.limits.idle_seconds:g} seconds"
        return Failure(Fault.BROKEN, message, asked.method)
    return Failure(Fault.BROKEN, "the connection to the server broke", asked.method)


def unauthenticated(
    response: httpx2.Response, body: bytes, hidden: Sequence[Secret], asked: Asked
) -> Failure:
    """What a 401 or a 403 means, with the secrets that were sent."""
    if not hidden:
        message = "the server wants a credential, and no vault of the session has one for its URL"
    elif response.status_code == httpx2.codes.FORBIDDEN:
        message = "the server does not let this credential do what was asked"
    else:
        message = "the server does not accept the credential"
    return Failure(Fault.UNAUTHENTICATED, message, asked.method, captured(response, body, hidden))


def refusal(
    failure: Failure | None, *, instead_of: httpx2.Response | None = None
) -> httpx2.Response:
    """The answer that has the library fail one request, and nothing else."""
    message = failure.message if failure is not None else "not sent"
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": message}}
    return httpx2.Response(
        httpx2.codes.BAD_GATEWAY,
        headers={"content-type": "application/json"},
        stream=_Closing(json.dumps(error).encode(), instead_of),
    )


class _Closing(httpx2.AsyncByteStream):
    """Some bytes, in place of an answer that is closed with them."""

    def __init__(self, content: bytes, response: httpx2.Response | None) -> None:
        self._content = content
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content

    async def aclose(self) -> None:
        if self._response is not None:
            await self._response.aclose()
