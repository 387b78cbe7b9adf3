"""MCP servers of sessions: which one is meant, as whom, and what a failure means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from mcp import MCPError

from catalogue.hosts import HostError, parse_url
from chassis.errors import DroverError, Reason
from drover.event.v1 import content_pb2
from drover.vault.v1.credential_proxy_service_pb2 import CallResponse, ListToolsResponse
from services.vault_proxy.domain.networking import networking_of
from services.vault_proxy.mcp import content, tools
from services.vault_proxy.mcp.arguments import parsed
from services.vault_proxy.mcp.bearer import SessionBearer
from services.vault_proxy.mcp.connection import Connection
from services.vault_proxy.mcp.exchange import Exchange, Failure, Fault, McpError
from services.vault_proxy.mcp.greeting import Greeter
from services.vault_proxy.mcp.pool import Connections, Whose

if TYPE_CHECKING:
    from services.vault_proxy.domain.server_credential import ServerCredential, ServerCredentials
    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.mcp.limits import Limits
    from services.vault_proxy.mcp.meter import McpMeter
    from services.vault_proxy.mcp.records import Records
    from services.vault_proxy.oauth.tokens import AccessTokens, Refreshed
    from services.vault_proxy.outbound import Outbound

_T = TypeVar("_T")
_LIST: Final = "tools/list"
_CALL: Final = "tools/call"
_SAID: Final = 4_096
"""Characters of a server's error that the model is shown."""

CONNECTION_FAILED: Final = "mcp_connection_failed"
AUTHENTICATION_FAILED: Final = "mcp_authentication_failed"
OUTCOME_UNKNOWN: Final = "outcome_unknown"


@dataclass(frozen=True, slots=True)
class _Wish(Generic[_T]):
    """What is asked of a server, and how many seconds it may take."""

    method: str
    ask: Callable[[Connection, Exchange], Awaitable[_T]]
    seconds: float


class McpServers:
    """Implements `ToolServers`. `close` it before its tasks are waited for."""

    def __init__(
        self,
        credentials: ServerCredentials,
        tokens: AccessTokens,
        outbound: Outbound,
        records: Records,
        *,
        tasks: asyncio.TaskGroup,
        meter: McpMeter,
        limits: Limits,
    ) -> None:
        self._credentials = credentials
        self._tokens = tokens
        self._records = records
        self._meter = meter
        self._limits = limits
        self._connections = Connections(
            lambda whose, bearer: Connection(Greeter(whose.url, outbound, bearer, limits), limits),
            tasks,
            limits,
        )
        meter.watch(self._connections.__len__)

    async def list_tools(self, facts: SessionFacts, server: str) -> ListToolsResponse:
        """What the server offers."""

        async def ask(connection: Connection, exchange: Exchange) -> ListToolsResponse:
            found = tools.told(await connection.tools(exchange), self._limits)
            return ListToolsResponse(tools=found, protocol_version=connection.protocol_version)

        try:
            return await self._asked(facts, server, _Wish(_LIST, ask, self._limits.list_seconds))
        except McpError as error:
            raise told_of(error.failure, server) from error
        except MCPError as error:
            message = f"it answered with an error: {error.message}"[:_SAID]
            raise told_of(Failure(Fault.REFUSED, message), server) from error

    async def call(
        self, facts: SessionFacts, server: str, tool: str, arguments: str, call_id: str
    ) -> CallResponse:
        """Calls one of its tools, once."""
        del call_id  # the hands' journal is by it; here nothing is remembered of a call
        given = parsed(arguments)

        async def ask(connection: Connection, exchange: Exchange) -> CallResponse:
            result = await connection.call(exchange, tool, given)
            return CallResponse(
                content=content.blocks(result, self._limits), is_error=bool(result.is_error)
            )

        try:
            return await self._asked(facts, server, _Wish(_CALL, ask, self._limits.call_seconds))
        except McpError as error:
            if error.failure.fault == Fault.UNUSABLE:
                return _failed(f"The tool was run, but its answer is lost: {error}.")
            raise told_of(error.failure, server, sent=True) from error
        except MCPError as error:  # the server's own word
            return _failed(error.message[:_SAID] or "The server answered with an error.")

    async def close(self) -> None:
        """Ends all connections."""
        await self._connections.close()

    async def _asked(self, facts: SessionFacts, server: str, wish: _Wish[_T]) -> _T:
        """One request, with its record. Raises `McpError`, `MCPError` and `DroverError`."""
        url = _url(facts, server)
        if (closed := _closed(facts, url)) is not None:
            await self._records.request(facts, url, wish.method, None, closed.fault)
            raise McpError(closed)
        credential = await self._credential(facts, server, url)
        started = time.monotonic()
        reason = "interrupted"
        try:
            answer = await self._once_or_again(facts, url, credential, wish)
            reason = ""
        except McpError as error:
            reason = error.failure.fault
            raise
        except MCPError:
            reason = "error_answered"
            raise
        finally:
            self._meter.requested(wish.method, reason or "answered", time.monotonic() - started)
            await self._records.request(facts, url, wish.method, credential, reason)
        return answer

    async def _credential(
        self, facts: SessionFacts, server: str, url: str
    ) -> ServerCredential | None:
        """As whom the server is asked; where that cannot be said, it is not asked as nobody."""
        try:
            return await self._credentials.for_server(
                facts.workspace_id, facts.session.vault_ids, url
            )
        except DroverError as error:
            failure = Failure(Fault.NO_TOKEN, f"its credential cannot be read: {error.message}")
            raise told_of(failure, server) from error

    async def _once_or_again(
        self,
        facts: SessionFacts,
        url: str,
        credential: ServerCredential | None,
        wish: _Wish[_T],
    ) -> _T:
        """Asks on a connection that is open, and on a new one where the old is of no use.

        That is where the server has forgotten the protocol's session and said so, or where nothing
        was sent: the only two cases in which a request is known not to have been heard.
        """
        whose = Whose(
            facts.workspace_id, facts.session_id, url, credential.id if credential else ""
        )
        exchange = Exchange()
        try:
            async with asyncio.timeout(wish.seconds):
                try:
                    return await self._on_a_connection(facts, whose, credential, exchange, wish)
                except _UnheardError:
                    exchange = Exchange()
                    return await self._on_a_connection(facts, whose, credential, exchange, wish)
        except TimeoutError:
            message = f"the server took more than {wish.seconds:g} seconds"
            fault = Fault.BROKEN if exchange.sent else Fault.UNREACHABLE
            raise McpError(Failure(fault, message)) from None

    async def _on_a_connection(
        self,
        facts: SessionFacts,
        whose: Whose,
        credential: ServerCredential | None,
        exchange: Exchange,
        wish: _Wish[_T],
    ) -> _T:
        async with self._connections.use(whose, partial(self._bearer, facts)) as kept:
            connection, bearer = kept
            bearer.credential = credential
            was_open = connection.is_open
            await connection.opened()
            try:
                return await wish.ask(connection, exchange)
            except McpError as error:
                fault = error.failure.fault
                if fault == Fault.GONE or (fault == Fault.UNREACHABLE and was_open):
                    self._connections.discard(whose, connection)
                    raise _UnheardError(error.failure) from error
                raise

    def _bearer(self, facts: SessionFacts) -> SessionBearer:
        async def told(ended: Refreshed) -> None:
            await self._records.refresh(facts.workspace_id, facts.session_id, facts.hand_id, ended)

        return SessionBearer(facts.workspace_id, self._credentials, self._tokens, told)


class _UnheardError(McpError):
    """The connection is of no use, and what was asked was not heard."""


def told_of(failure: Failure, server: str, *, sent: bool = False) -> DroverError:
    """A failure as an error that says which of the three kinds it is.

    `sent`: what was asked for has effects, so that no answer means an unknown outcome.
    """
    message = f"MCP server {server}: {failure.message}"
    if failure.fault == Fault.UNAUTHENTICATED:
        return DroverError(Reason.PERMISSION_DENIED, message, error_code=AUTHENTICATION_FAILED)
    if failure.fault == Fault.BROKEN and sent:
        return DroverError(Reason.CONFLICT, message, error_code=OUTCOME_UNKNOWN)
    return DroverError(
        Reason.UNAVAILABLE,
        message,
        retry_after=failure.retry_after,
        error_code=CONNECTION_FAILED,
    )


def _url(facts: SessionFacts, server: str) -> str:
    """The server's URL, its host in canonical spelling, by the agent's name for the server."""
    for one in facts.session.agent.mcp_servers:
        if one.name == server:
            try:
                url = parse_url(one.url)
            except HostError as error:
                raise told_of(Failure(Fault.REFUSED, f"its URL {error}"), server) from error
            query = f"?{url.query}" if url.query else ""
            return f"{url.scheme}://{url.host.with_port(url.port, url.scheme)}{url.path}{query}"
    raise DroverError(Reason.NOT_FOUND, f"the session has no MCP server named {server}")


def _closed(facts: SessionFacts, url: str) -> Failure | None:
    """What the session's networking has against the server: that was asked when it was made, too.

    `allow_mcp_servers` opens them all, named by an address or not.
    """
    networking = networking_of(facts.session, {})
    if networking.readable and networking.servers_allowed:
        return None
    refusal = networking.refusal(parse_url(url).host)
    return None if refusal is None else Failure(Fault.NOT_ALLOWED, refusal.message)


def _failed(text: str) -> CallResponse:
    block = content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text))
    return CallResponse(content=[block], is_error=True)
