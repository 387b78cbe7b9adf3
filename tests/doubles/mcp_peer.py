"""The process of the MCP server of the tests: `python -m tests.doubles.mcp_peer`.

It prints one line of JSON when it listens, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.doubles.mcp_faults import Faults
from tests.doubles.mcp_oauth import TokenEndpoint, Tokens
from tests.doubles.mcp_tools import Offer

_OPEN = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class Peer:
    """Everything that one process serves.

    `/mcp` takes all versions of the protocol, `/old` no later one than 2025-11-25, `/sse` the
    transport before that; `/json/mcp` answers JSON instead of streams. Beneath `/private` the same
    is there for holders of an access token.
    """

    def __init__(self, origin: str) -> None:
        self.offer = Offer()
        self.tokens = Tokens()
        self.endpoint = TokenEndpoint(self.tokens, origin)
        self.static: set[str] = set()
        self.banned: set[str] = set()
        self.challenge = ""
        self.seen: list[dict[str, Any]] = []
        self.faults = Faults(self.offer)
        server = self.offer.server()
        self._mcp = server.streamable_http_app(transport_security=_OPEN)
        self._manager = server.session_manager
        plain = self.offer.server()
        self._json = plain.streamable_http_app(transport_security=_OPEN, json_response=True)
        self._json_manager = plain.session_manager
        self._sse_server = self.offer.server()

    def app(self) -> ASGIApp:
        """The application."""
        return Starlette(
            routes=[
                Route("/control", self._control, methods=["GET", "POST"]),
                Mount("/oauth", app=self.endpoint.app),
                Mount("/private", app=self._recorded(self._guarded(self._protocol()))),
                Mount("/", app=self._recorded(self._protocol())),
            ]
        )

    async def start(self, stack: AsyncExitStack) -> None:
        """Starts what the library runs in the background."""
        await stack.enter_async_context(self._manager.run())
        await stack.enter_async_context(self._json_manager.run())

    def _protocol(self) -> ASGIApp:
        sse = SseServerTransport("/messages/", security_settings=_OPEN)

        routes = [
            Route("/sse", _Events(sse, self._sse_server), methods=["GET"]),
            Mount("/messages/", app=sse.handle_post_message),
            Mount("/json", app=self._json),
            Route("/old", _Old(self._mcp)),
            Mount("/", app=self._mcp),
        ]
        return Starlette(routes=routes)

    def _recorded(self, app: ASGIApp) -> ASGIApp:
        async def record(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            body, more = bytearray(), scope["method"] == "POST"
            while more:
                message = await receive()
                body += message.get("body", b"")
                more = message.get("more_body", False)
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            told = json.loads(body) if body else {}
            self.seen.append(
                {
                    "path": scope["path"],
                    "http": scope["method"],
                    "method": told.get("method", "") if isinstance(told, dict) else "",
                    "headers": headers,
                    "message": told,
                }
            )
            given = False

            async def replay() -> Message:
                nonlocal given
                if given or scope["method"] != "POST":
                    return await receive()
                given = True
                return {"type": "http.request", "body": bytes(body), "more_body": False}

            return await app(scope, replay, send)

        return record

    def _guarded(self, app: ASGIApp) -> ASGIApp:
        async def guard(scope: Scope, receive: Receive, send: Send) -> None:
            header = dict(scope["headers"]).get(b"authorization", b"").decode()
            token = header.removeprefix("Bearer ")
            known = token in self.static or await self.tokens.load_access_token(token) is not None
            if header != f"Bearer {token}" or not known or token in self.banned:
                refused = JSONResponse(
                    {"error": "invalid_token", "seen": header},
                    403 if token in self.banned else 401,
                    {"www-authenticate": self.challenge or 'Bearer error="invalid_token"'},
                )
                return await refused(scope, receive, send)
            return await app(scope, receive, send)

        return guard

    async def _control(self, request: Request) -> Response:
        if request.method == "POST":
            return JSONResponse(self._obey(await request.json()))
        return JSONResponse(
            {
                "runs": self.offer.runs,
                "metas": self.offer.metas,
                "seen": self.seen,
                "token_requests": self.endpoint.asked,
                "spent": self.tokens.spent,
                "live": [*self.tokens.refresh],
                "faults": self.faults.seen,
            }
        )

    def _obey(self, wish: dict[str, Any]) -> Any:
        return self._verbs()[wish.pop("do")](**wish) or {}

    def _verbs(self) -> dict[str, Callable[..., Any]]:
        return {
            "grant": lambda **given: self.tokens.grant(**given).model_dump(),
            "static": self._allow,
            "revoke": self._revoke,
            "ban": self._ban,
            "challenge": lambda challenge: _change(self, {"challenge": challenge}),
            "tokens": lambda **given: _change(self.tokens, given),
            "fault": lambda fault: _change(self.endpoint, {"fault": fault}),
            "hold": self.endpoint.gate.clear,
            "release": self.endpoint.gate.set,
            "offer": lambda **given: _change(self.offer, given),
            "forget": self._forget,
        }

    def _allow(self, token: str) -> None:
        self.static.add(token)

    def _ban(self, token: str) -> None:
        self.banned.add(token)

    def _revoke(self, token: str) -> None:
        self.tokens.access.pop(token, None)
        self.tokens.refresh.pop(token, None)
        self.static.discard(token)

    def _forget(self) -> None:
        kept = (self.seen, self.offer.metas, self.offer.runs, self.endpoint.asked)
        for told in (*kept, self.faults.seen):
            told.clear()


def _change(what: object, given: dict[str, Any]) -> None:
    for name, value in given.items():
        setattr(what, name, value)


class _Events:
    """The older transport: one stream of events a client."""

    def __init__(self, sse: SseServerTransport, server: Server[Any]) -> None:
        self._sse = sse
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._sse.connect_sse(scope, receive, send) as streams:
            options = self._server.create_initialization_options()
            await self._server.run(streams[0], streams[1], options)


class _Old:
    """A server from before 2026: it refuses versions that it does not know, with a bare 400."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
        if version in MODERN_PROTOCOL_VERSIONS:
            return await Response("Bad Request", 400)(scope, receive, send)
        return await self._app({**scope, "path": "/mcp", "root_path": ""}, receive, send)


async def _serve(certificate: str, key: str) -> None:
    config = uvicorn.Config(
        lambda: None,
        host="127.0.0.1",
        port=0,
        log_level="critical",
        lifespan="off",
        ssl_certfile=certificate or None,
        ssl_keyfile=key or None,
        timeout_graceful_shutdown=0,
    )
    listening = config.bind_socket()
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections have it too
    listening.listen(128)
    port = listening.getsockname()[1]
    peer = Peer(f"http://localhost:{port}")
    config.app = peer.app()
    config.factory = False
    server = uvicorn.Server(config)
    async with AsyncExitStack() as stack:
        await peer.start(stack)
        faults = await peer.faults.listen()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve([listening]))
            sys.stdout.write(json.dumps({"port": port, "faults": faults}) + "\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.read)
            server.should_exit = True
            await serving
            await peer.faults.close()


def main() -> None:
    """Serves until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificate", default="")
    parser.add_argument("--key", default="")
    given = parser.parse_args()
    asyncio.run(_serve(given.certificate, given.key))


if __name__ == "__main__":
    main()
