"""A hand's listener: each connection is one to the vault proxy, with the hand's grant before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.egress import refusal
from services.hands.egress.proxy import PREAMBLE
from services.hands.egress.refusal import RefusedError
from services.hands.egress.relay import End

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from chassis.clock import Clock
    from chassis.secret import Secret
    from services.hands.egress.metrics import EgressMetrics
    from services.hands.egress.proxy import ProxyAddress
    from services.hands.egress.refusal import Refusal

CONNECT_SECONDS: Final = 5.0
"""How long the vault proxy may take to take a connection."""
_DRAIN_SECONDS: Final = 2.0
"""How long one that is refused may take to read why."""

_log = structlog.get_logger("hands.egress")


class Listener:
    """Relays what connects to one hand's socket. `allow` is the grant of the session served now.

    `allow` raises `RefusedError`. `tasks` owns the connections' beginnings; `most` bounds how many
    there are.
    """

    def __init__(
        self,
        allow: Callable[[], Awaitable[Secret]],
        proxy: ProxyAddress,
        tasks: asyncio.TaskGroup,
        *,
        most: int,
        clock: Clock,
        metrics: EgressMetrics,
    ) -> None:
        self._allow = allow
        self._proxy = proxy
        self._tasks = tasks
        self._most = most
        self._clock = clock
        self.metrics = metrics
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, listener: socket.socket) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, sock=listener)

    def cut(self) -> None:
        """Ends every connection: none outlives its session's use of the hand."""
        for connection in tuple(self._connections):
            connection.abort()

    def close(self) -> None:
        """Takes no more, and ends those that there are."""
        if self._server is not None:
            self._server.close()
        self.cut()

    def _connection(self) -> _Connection:
        return _Connection(self)

    def begin(self, connection: _Connection) -> None:
        """A program has connected."""
        self._connections.add(connection)
        self.metrics.began()
        if len(self._connections) > self._most:
            connection.refuse(refusal.TOO_MANY)
        else:
            self._tasks.create_task(self._join(connection), name="egress")

    def end(self, connection: _Connection) -> None:
        """Its connection has ended."""
        self._connections.discard(connection)
        self.metrics.ended()

    async def _join(self, connection: _Connection) -> None:
        began = self._clock.monotonic()
        try:
            grant = await self._allow()
            async with asyncio.timeout(CONNECT_SECONDS):
                upstream = await self._proxy.connect(lambda: End(self.metrics.into))
        except RefusedError as error:
            connection.refuse(error.refusal)
        except (OSError, TimeoutError) as error:
            _log.warning("egress_proxy_unreachable", reason=str(error) or "it does not answer")
            connection.refuse(refusal.NO_PROXY)
        except Exception:  # noqa: BLE001  # whatever it is, the other connections go on
            _log.exception("egress_not_relayed")
            connection.refuse(refusal.NO_PROXY)
        else:
            if connection.transport is None or upstream.transport is None:
                upstream.abort()
                connection.abort()
                return
            upstream.transport.write(f"{PREAMBLE} {grant.open()}\n".encode("ascii"))
            connection.join(upstream)
            self.metrics.relayed(self._clock.monotonic() - began)


class _Connection(End):
    """A program's end. One that is refused is told why, and whatever it sends is dropped."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener.metrics.out)
        self._listener = listener
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._listener.begin(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.end(self)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def eof_received(self) -> bool:
        if self._refused:
            return False
        return super().eof_received()

    def refuse(self, why: Refusal) -> None:
        """Answers, and ends once the answer was read. Nothing was relayed before."""
        self._listener.metrics.refused(why.reason)
        transport = self.transport
        if transport is None:
            return
        self._refused = True
        transport.write(why.answer())
        transport.write_eof()
        # Closed at once it would be reset, and the answer lost, by what was sent and not read.
        transport.resume_reading()
        asyncio.get_running_loop().call_later(_DRAIN_SECONDS, transport.abort)
        if self.ended:
            transport.close()
