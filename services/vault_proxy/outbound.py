"""HTTP clients for what this process asks of the outside by itself: MCP servers, token endpoints,
pages. Their connections go through the one guarded dialler, so that the rules about addresses
hold for them as for a sandbox (cases E8, V8)."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Final, Self

import anyio
import anyio.abc
import httpcore2
import httpx2
from anyio.streams.tls import TLSAttribute, TLSStream

from services.vault_proxy.domain.refusal import Why
from services.vault_proxy.proxy.dial import AddressDeniedError, Dialler, UnreachableError

AGENT: Final = "drover"
SECRET: Final = "drover.secret"  # noqa: S105
"""The extension of a request that has a secret in it, which does not leave in the clear."""
_CONNECT: Final = 10.0
_ERRORS: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class AnswerTooLargeError(Exception):
    """An answer has more bytes than are taken."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: to connect, TLS included; without a byte; for a free connection."""

    connect: float = _CONNECT
    idle: float = 60.0
    pool: float = 10.0


class Outbound:
    """Makes clients. They share the rules and the trust, never a connection.

    `in_clear` connects for requests by `http` that are marked as `SECRET`; without one there are
    none.
    """

    def __init__(
        self, dialler: Dialler, trust: ssl.SSLContext, in_clear: Dialler | None = None
    ) -> None:
        self._dialler = dialler
        self._trust = trust
        self._in_clear = in_clear or _Nowhere()

    def transport(self, *, connections: int = 20, keepalive: float = 30.0) -> GuardedTransport:
        """A pool of connections of its own. `keepalive`: seconds that an idle one is kept."""
        diallers = self._dialler, self._in_clear
        return GuardedTransport(diallers, self._trust, connections, keepalive)

    def client(
        self,
        *,
        timeouts: Timeouts,
        transport: httpx2.AsyncBaseTransport | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.AsyncClient:
        """A client that follows no redirect: what a request carries is meant for its host alone.

        It takes no proxy, credential or authority from this process's environment, keeps no
        cookies, and asks for answers as they are: what is counted is what is held. Besides
        httpx2's errors its requests raise those of the dialler.
        """
        return httpx2.AsyncClient(
            transport=transport or self.transport(),
            timeout=httpx2.Timeout(
                timeouts.idle, connect=timeouts.connect, pool=timeouts.pool, read=timeouts.idle
            ),
            headers={"user-agent": AGENT, "accept-encoding": "identity", **(headers or {})},
            follow_redirects=False,
            max_redirects=0,
            trust_env=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )


def trust(ca_file: Path | None) -> ssl.SSLContext:
    """What servers' certificates are verified with: the system's roots, and those of a PEM file.

    Raises `OSError` and `ssl.SSLError` for a file that cannot be read.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=str(ca_file))
    return context


async def bounded(response: httpx2.Response, limit: int) -> bytes:
    """The body of a streamed response. Raises `AnswerTooLargeError` past `limit` bytes."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > limit:
            msg = f"the answer is larger than {limit:,} bytes"
            raise AnswerTooLargeError(msg)
    return bytes(body)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """HTTP/1.1 over connections of the guarded diallers.

    What is marked as `SECRET` and sent without TLS has connections of its own: of those that carry
    anything else nobody has asked where they lead to.
    """

    def __init__(
        self,
        diallers: tuple[Dialler, Dialler],
        trust: ssl.SSLContext,
        connections: int,
        keepalive: float,
    ) -> None:
        self._inner, self._in_clear = (
            _Pooled(
                httpcore2.AsyncConnectionPool(
                    ssl_context=trust,
                    max_connections=connections,
                    max_keepalive_connections=connections,
                    keepalive_expiry=keepalive,
                    network_backend=_Backend(dialler),
                )
            )
            for dialler in diallers
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends one request; its answer is read by the caller."""
        in_clear = request.url.scheme != "https" and bool(request.extensions.get(SECRET))
        pool = self._in_clear if in_clear else self._inner
        return await pool.handle_async_request(request)

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._inner.aclose()
        await self._in_clear.aclose()


class _Nowhere:
    """See `Dialler`."""

    async def connect(self, host: str, port: int, *, within: float) -> socket.socket:  # noqa: ARG002
        """Connects to nothing."""
        message = f"a secret is not sent to {host} without TLS: give an https:// URL"
        raise AddressDeniedError(Why.ADDRESS_NOT_ALLOWED, message)


class _Pooled(httpx2.AsyncHTTPTransport):
    """httpx2's transport over a pool that was made elsewhere."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self._pool = pool


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects through the dialler, and in no other way."""

    def __init__(self, dialler: Dialler) -> None:
        self._dialler = dialler

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore2's interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        del local_address, socket_options
        try:
            connected = await self._dialler.connect(
                host, port, within=_CONNECT if timeout is None else timeout
            )
        except UnreachableError as error:
            if error.late:
                raise httpcore2.ConnectTimeout(error.message) from error
            raise httpcore2.ConnectError(error.message) from error
        return _Stream(await anyio.abc.SocketStream.from_socket(connected))

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    """One connection, plain or under TLS."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        with _translated(httpcore2.ReadTimeout, httpcore2.ReadError), anyio.fail_after(timeout):
            try:
                return await self._stream.receive(max_bytes)
            except anyio.EndOfStream:
                return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if buffer:
            with (
                _translated(httpcore2.WriteTimeout, httpcore2.WriteError),
                anyio.fail_after(timeout),
            ):
                await self._stream.send(buffer)

    async def aclose(self) -> None:
        with contextlib.suppress(*_ERRORS):
            await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Self:
        try:
            with (
                _translated(httpcore2.ConnectTimeout, httpcore2.ConnectError),
                anyio.fail_after(timeout),
            ):
                wrapped = await TLSStream.wrap(
                    self._stream,
                    ssl_context=ssl_context,
                    hostname=server_hostname,
                    standard_compatible=False,
                    server_side=False,
                )
        except BaseException:
            await self.aclose()
            raise
        return type(self)(wrapped)

    def get_extra_info(self, info: str) -> object:
        if info == "ssl_object":
            return self._stream.extra(TLSAttribute.ssl_object, None)  # noqa: S610
        if info == "is_readable":
            below = self._stream.extra(anyio.abc.SocketAttribute.raw_socket, None)  # noqa: S610
            return below is None or _readable(below.fileno())
        return None


@contextlib.contextmanager
def _translated(late: type[Exception], broken: type[Exception]) -> Iterator[None]:
    """Has httpcore2's errors raised for those of the stream below."""
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except (*_ERRORS, anyio.EndOfStream) as error:
        raise broken(str(error) or type(error).__name__) from error


def _readable(descriptor: int) -> bool:
    """Whether an idle connection has something to read: then its peer has closed it."""
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
