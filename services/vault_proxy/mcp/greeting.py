"""The first words with an MCP server: which transport it has, which version both know.

Streamable HTTP is tried first, in the newest version, then the older transport.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import httpx2
import mcp_types as types
import structlog
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from services.vault_proxy.mcp.exchange import Exchange, Failure, Fault
from services.vault_proxy.mcp.transport import ServerTransport
from services.vault_proxy.outbound import Timeouts

if TYPE_CHECKING:
    from services.vault_proxy.mcp.limits import Limits
    from services.vault_proxy.mcp.transport import Bearer
    from services.vault_proxy.outbound import Outbound

_OLDER: Final = frozenset({400, 404, 405})
"""What a server of the older transport answers to a message at its URL (2025-11-25, transports)."""
_NAME: Final = "drover"
_LOUD: Final = ("mcp", "client", "httpx2", "httpcore2")

_log = structlog.get_logger("vault_proxy.mcp")


def quiet() -> None:
    """Keeps the libraries' log lines out of ours: they quote messages as they are, both ways."""
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class Greeter:
    """Opens the protocol with one server, as one session."""

    def __init__(self, url: str, outbound: Outbound, bearer: Bearer, limits: Limits) -> None:
        self._url = url
        self._outbound = outbound
        self._bearer = bearer
        self._limits = limits

    async def greeted(self, stack: AsyncExitStack, greeting: Exchange) -> tuple[Client, bool]:
        """A client that may be used, and whether all its answers come in one stream.

        `stack` closes it, in the task that this ran in. Raises what the library does: see
        `meaning`.
        """
        client = await stack.enter_async_context(self._http())
        transport = streamable_http_client(
            self._url, http_client=client, max_sse_event_size=self._limits.answer_bytes
        )
        try:
            return await stack.enter_async_context(_protocol(transport, "auto")), False
        except Exception:
            if greeting.over or greeting.statuses.get("initialize") not in _OLDER:
                raise
        older = sse_client(self._url, httpx_client_factory=self._standing)
        return await stack.enter_async_context(_protocol(older, "legacy")), True

    def _standing(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """What the older transport makes its client with; time limits are ours."""
        del headers, timeout, auth
        return self._http(standing=True)

    def _http(self, *, standing: bool = False) -> httpx2.AsyncClient:
        """A client with connections of its own, to this server alone.

        `standing`: its one answer is open for as long as the connection lives.
        """
        limits = self._limits
        idle = limits.call_seconds + limits.unused_seconds if standing else limits.idle_seconds
        inner = self._outbound.transport()
        return self._outbound.client(
            timeouts=Timeouts(limits.connect_seconds, idle, limits.connect_seconds),
            transport=ServerTransport(inner, httpx2.URL(self._url), self._bearer, limits),
        )


def meaning(greeting: Exchange, error: Exception) -> Failure:
    """Why a connection did not come about."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, RuntimeError) and "protocol version" in str(error):
        return Failure(Fault.REFUSED, "the server speaks no version of MCP that is spoken here")
    if (failure := greeting.failure) is not None:
        # Nothing that a server does or forgets while it greets is a call's outcome.
        heard = failure.fault in {Fault.BROKEN, Fault.GONE}
        return replace(failure, fault=Fault.UNREACHABLE) if heard else failure
    if isinstance(error, TimeoutError):
        return Failure(Fault.UNREACHABLE, "the server did not greet in time")
    if isinstance(error, MCPError):
        return Failure(Fault.REFUSED, f"the server refuses to talk: {error.message}"[:500])
    _log.warning("mcp_greeting_failed", error=type(error).__name__)
    return Failure(Fault.REFUSED, "the server does not speak MCP")


def _protocol(transport: Any, mode: str) -> Client:  # noqa: ANN401  # the library's
    return Client(
        transport,
        mode=mode,
        client_info=types.Implementation(name=_NAME, version=_version()),
        cache=None,
    )


def _version() -> str:
    try:
        return metadata.version("drover")
    except metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return "0"
