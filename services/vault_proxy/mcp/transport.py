"""HTTP to one MCP server: puts the credential in, and lets nothing through that is too much.

The library's transports give up a whole connection for one request that fails, and tell its caller
no more than that. Here a failure is noted in the request's `Exchange`, and the library is answered
with an error that concerns the one request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import httpx2

from services.vault_proxy.captured import captured
from services.vault_proxy.domain.redaction import redaction
from services.vault_proxy.domain.rewriting import Rewriter, Table
from services.vault_proxy.mcp.answer import UNSENT, Asked, Watched, lost, refusal, unauthenticated
from services.vault_proxy.mcp.exchange import Exchange, Failure, Fault, McpError, current_exchange
from services.vault_proxy.outbound import SECRET
from services.vault_proxy.proxy.dial import AddressDeniedError, DialError

if TYPE_CHECKING:
    from chassis.secret import Secret
    from services.vault_proxy.mcp.limits import Limits

_HEADER: Final = re.compile(r"[!-~]+\Z")
_METHOD: Final = re.compile(rb'"method"\s*:\s*"([A-Za-z/_]{1,64})"')
_HEAD: Final = 512
_CALL: Final = "tools/call"
_MAX_ERROR: Final = 64 * 1024
_ASKED: Final = 120.0
_SHOWN: Final = 4
"""Tokens that are struck out, the latest that were sent: earlier ones are worth nothing."""


class Bearer(Protocol):
    """The token of the session's credential for this server."""

    async def token(self) -> Secret | None:
        """What to send now; `None` for nothing. Raises `McpError`."""
        ...

    async def another(self, refused: Secret) -> Secret | None:
        """Another than the one that was refused, if there is one. Raises `McpError`."""
        ...


class ServerTransport(httpx2.AsyncBaseTransport):
    """Requests to one origin, with its credential."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        url: httpx2.URL,
        bearer: Bearer,
        limits: Limits,
    ) -> None:
        self._inner = inner
        self._origin = _origin(url)
        self._bearer = bearer
        self._shown: tuple[str, ...] = ()
        self._table = Table({})
        self._limits = limits

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request. Whatever fails is answered, not raised."""
        exchange = current_exchange()
        asked = Asked(exchange, _method(request), self._limits)
        failure = self._unsendable(request, asked)
        if failure is not None:
            return refusal(failure)
        try:
            return await self._exchanged(request, asked)
        except McpError as error:
            return refusal(exchange.fail(error.failure))
        except DialError as error:
            denied = isinstance(error, AddressDeniedError)
            fault = Fault.FORBIDDEN if denied else Fault.UNREACHABLE
            return refusal(asked.fail(fault, error.message))
        except httpx2.TransportError as error:
            return refusal(exchange.fail(lost(error, asked)))

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._inner.aclose()

    def _unsendable(self, request: httpx2.Request, asked: Asked) -> Failure | None:
        exchange = asked.exchange
        if exchange.over:
            return exchange.failure
        exchange.requests += 1
        if exchange.requests > self._limits.requests:
            return asked.fail(Fault.BROKEN, "the server asks for more requests than it may")
        if _origin(request.url) != self._origin:
            message = "the server names another host for its messages, which gets no credential"
            return asked.fail(Fault.FORBIDDEN, message)
        return None

    async def _exchanged(self, request: httpx2.Request, asked: Asked) -> httpx2.Response:
        token = await self._bearer.token()
        response = await self._sent(request, asked.exchange, token)
        hidden = [token] if token is not None else []
        if response.status_code == httpx2.codes.UNAUTHORIZED and token is not None:
            body = await self._read(response)
            another = await self._bearer.another(token)
            if another is None:
                failure = unauthenticated(response, body, hidden, asked)
                return refusal(asked.exchange.fail(failure))
            hidden = [token, another]
            response = await self._sent(request, asked.exchange, another)
        asked.exchange.statuses[asked.method] = response.status_code
        if response.is_success:
            asked.exchange.begun |= asked.method == _CALL
            return self._taken(request, response, asked, hidden)
        return await self._not_taken(request, response, asked, hidden)

    async def _sent(
        self, request: httpx2.Request, exchange: Exchange, token: Secret | None
    ) -> httpx2.Response:
        """Sends a copy that has the token: what the library holds, and may show, has none."""
        headers, extensions = request.headers.copy(), dict(request.extensions)
        if token is not None:
            extensions[SECRET] = True
            if not _HEADER.match(token.open()):
                message = "the credential has characters that no header can hold"
                raise McpError(Failure(Fault.UNAUTHENTICATED, message))
            headers["authorization"] = f"Bearer {token.open()}"
            self._show(token.open())
        copy = httpx2.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream,
            extensions=extensions,
        )
        before, exchange.sent = exchange.sent, True
        try:
            return await self._inner.handle_async_request(copy)
        except (*UNSENT, DialError):
            exchange.sent = before
            raise

    def _taken(
        self,
        request: httpx2.Request,
        response: httpx2.Response,
        asked: Asked,
        hidden: Sequence[Secret],
    ) -> httpx2.Response:
        """A result on its way: counted, and without the credential wherever it comes back."""
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            message = "the server compresses its answer, which it was not asked to"
            return refusal(asked.fail(Fault.UNUSABLE, message), instead_of=response)
        return httpx2.Response(
            response.status_code,
            headers=_without(response.headers, hidden),
            stream=Watched(
                response, asked, _Striking(self._strikes), standing=request.method == "GET"
            ),
            extensions=response.extensions,
        )

    async def _not_taken(
        self,
        request: httpx2.Request,
        response: httpx2.Response,
        asked: Asked,
        hidden: Sequence[Secret],
    ) -> httpx2.Response:
        status = response.status_code
        body = await self._read(response)
        if status in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
            return refusal(asked.exchange.fail(unauthenticated(response, body, hidden, asked)))
        in_trouble = status >= httpx2.codes.INTERNAL_SERVER_ERROR
        gone = status == httpx2.codes.NOT_FOUND and "mcp-session-id" in request.headers
        if _is_error(body) and not in_trouble and not gone:
            return httpx2.Response(
                status,
                headers={"content-type": "application/json"},
                content=self._table.replaced(body),
            )
        fault = Fault.BROKEN if in_trouble else Fault.REFUSED
        message = f"the server answered with HTTP {status}"
        if response.has_redirect_location:
            message = "the server redirects, which is not followed: name the URL that it means"
        if gone:
            fault, message = Fault.GONE, "the server has forgotten the protocol's session"
        shown = captured(response, body, hidden)
        failure = Failure(fault, message, asked.method, shown, _retry_after(response))
        return refusal(asked.exchange.fail(failure))

    def _show(self, value: str) -> None:
        """A token is about to be sent: it is struck out from now on, and those before it are."""
        if value not in self._shown:
            self._shown = (*self._shown, value)[-_SHOWN:]
            self._table = redaction(self._shown)

    def _strikes(self) -> Table:
        return self._table

    async def _read(self, response: httpx2.Response) -> bytes:
        """The beginning of an error's body."""
        body = bytearray()
        try:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > _MAX_ERROR:
                    break
        except httpx2.HTTPError:
            pass
        finally:
            await response.aclose()
        return bytes(body)


class _Striking:
    """Strikes out of one answer what its server has been sent: see `domain.ports.Stream`.

    That is looked up at each piece. A stream may be open for longer than the token that it was
    asked for with is used, and brings the answers to requests that are sent with the next.
    """

    def __init__(self, table: Callable[[], Table]) -> None:
        self._current = table
        self._rewriter = Rewriter(table())

    @property
    def holding(self) -> bool:
        return self._rewriter.holding

    def feed(self, chunk: bytes) -> bytes:
        self._rewriter.turn(self._current())
        return self._rewriter.feed(chunk)

    def finish(self) -> bytes:
        self._rewriter.turn(self._current())
        return self._rewriter.finish()


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _method(request: httpx2.Request) -> str:
    """The MCP method of a request, as far as it is seen from here."""
    stream = request.stream
    head = b"".join(stream)[:_HEAD] if isinstance(stream, httpx2.ByteStream) else b""
    found = _METHOD.search(head)
    return found[1].decode() if found else ""


def _is_error(body: bytes) -> bool:
    """Whether this is an error as JSON-RPC has it."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and isinstance(told.get("error"), dict)


def _without(headers: httpx2.Headers, hidden: Sequence[Secret]) -> list[tuple[bytes, bytes]]:
    """Headers but for those that have one of the secrets in them."""
    values = [secret.open().encode() for secret in hidden]
    return [pair for pair in headers.raw if not any(value in pair[1] for value in values)]


def _retry_after(response: httpx2.Response) -> float | None:
    given = response.headers.get("retry-after", "")
    return min(float(given), _ASKED) if given.isdigit() else None
