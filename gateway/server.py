"""The HTTP server: uvicorn, on an address of ours, stopped by us rather than by signals."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from chassis.errors import CannotStartError, DroverError, Reason
from chassis.ids import new_id
from gateway import errors
from gateway.wire import WIRE, Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

_BACKLOG = 2_048
# Longer than clients keep idle connections, so that no request meets a connection just closed.
_IDLE_SECONDS = 75
_GRACE_SECONDS = 8
_CLOSE = (b"connection", b"close")


class HttpServer:
    """Serves an ASGI application on `listen` (`host:port`, port 0 for a free one).

    Raises `CannotStartError` for an address that is not to be had.
    """

    def __init__(self, app: ASGIApp, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, int(port)), family=family, backlog=_BACKLOG)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            msg = f"{listen} cannot be listened on ({why}): DROVER_LISTEN names another"
            raise CannotStartError(msg) from error
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # X-Forwarded-* is whatever a client likes to write (CASES A6)
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        self._server = _Uvicorn(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Where it listens, with the port it really has."""
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Starts to accept connections; the server's task belongs to `group`."""
        self._task = group.create_task(self._server.serve(sockets=[self._socket]))
        await self._server.accepting.wait()
        structlog.get_logger("gateway.server").info("listening", address=self.address)

    async def report(self, *, serving: bool) -> None:
        """Once it is to go, closes the connection that an answer has come by.

        Clients, and what stands before several gateways, open the next one elsewhere.
        """
        configured, now = self._server.config.encoded_headers, self._server.server_state
        if not serving:
            configured.append(_CLOSE)  # from the next second on
            now.default_headers = [*now.default_headers, _CLOSE]

    async def stop(self) -> None:
        """Ends within 8 s: requests are answered, idle connections closed."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


class _Protocol(HttpToolsProtocol):
    """uvicorn's parser, which lets a response reach its connection.

    It answers what is no HTTP in the API's own form, too.
    """

    wire: Wire

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.wire = Wire(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.wire.lose()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.wire.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.wire.resume()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {WIRE: {"wire": self.wire}}

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's own words
        request_id = new_id("req")
        error = DroverError(Reason.INVALID_ARGUMENT, "this is not a valid HTTP request")
        body = errors.body(error, request_id)
        head = (
            "HTTP/1.1 400 Bad Request\r\n"
            f"content-type: {errors.JSON}\r\ncontent-length: {len(body)}\r\n"
            f"request-id: {request_id}\r\nx-should-retry: false\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class _Uvicorn(uvicorn.Server):
    """uvicorn that leaves signals alone and says when it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
