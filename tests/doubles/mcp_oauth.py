"""An OAuth authorization server on the official library's token handler: refresh tokens rotate."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import Any, cast
from urllib.parse import parse_qs

from mcp.server.auth.provider import AccessToken, OAuthAuthorizationServerProvider, RefreshToken
from mcp.server.auth.routes import create_auth_routes
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class Tokens:
    """Clients and tokens, as far as the library's token handler asks for them.

    A refresh token that was used once is worth nothing any more.
    """

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.spent: list[str] = []
        self.expires_in = 3600
        self.rotates = True
        self.mark = ""
        """A word that every token has in it."""

    def grant(
        self, client_id: str, client_secret: str | None, method: str, scope: str
    ) -> OAuthToken:
        """Registers a client, and gives it its first tokens."""
        self.clients[client_id] = OAuthClientInformationFull(
            client_id=client_id,
            client_secret=client_secret,
            token_endpoint_auth_method=method,
            scope=scope,
        )
        return self._issue(client_id, scope.split())

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if not self.rotates:
            token = self._issue(client.client_id, scopes)
            self.refresh.pop(token.refresh_token or "")
            return token.model_copy(update={"refresh_token": None})
        del self.refresh[refresh_token.token]
        self.spent.append(refresh_token.token)
        return self._issue(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.access.get(token)
        return None if found is None or (found.expires_at or 0) < time.time() else found

    def _issue(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access = f"at-{self.mark}{secrets.token_urlsafe(24)}"
        refresh = f"rt-{self.mark}{secrets.token_urlsafe(24)}"
        self.access[access] = AccessToken(
            token=access,
            client_id=client_id,
            scopes=scopes,
            expires_at=int(time.time()) + self.expires_in,
        )
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(
            access_token=access,
            refresh_token=refresh,
            expires_in=self.expires_in,
            scope=" ".join(scopes) or None,
        )


class TokenEndpoint:
    """The token endpoint: counts what it is asked, and fails as it is told to.

    `fault`: {"status", "body", "content_type"}, {"redirect"}, {"hang"} or {"merge"}, the latter
    with members for the answer; with "times" it passes after so many requests. `held` requests
    wait for `gate`.
    """

    def __init__(self, tokens: Tokens, issuer: str) -> None:
        self.asked: list[dict[str, str]] = []
        self.fault: dict[str, Any] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self._library: ASGIApp = Starlette(
            routes=create_auth_routes(
                provider=cast("OAuthAuthorizationServerProvider[Any, Any, Any]", tokens),
                issuer_url=AnyHttpUrl(issuer),
            )
        )
        self.app: ASGIApp = Starlette(routes=[Route("/token", self._token, methods=["POST"])])

    async def _token(self, request: Request) -> Response:
        body = await request.body()
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self.asked.append(form | {"authorization": request.headers.get("authorization", "")})
        await self.gate.wait()
        fault = self._due()
        if "hang" in fault:
            await asyncio.Event().wait()
        if "redirect" in fault:
            return RedirectResponse(fault["redirect"], status_code=fault.get("status", 307))
        if "status" in fault:
            return Response(
                fault.get("body", "{}"),
                fault["status"],
                media_type=fault.get("content_type", "application/json"),
            )
        answer = await _through(self._library, request.scope, body)
        if "merge" in fault and answer[0] == 200:
            return JSONResponse({**json.loads(answer[1]), **fault["merge"]})
        return Response(answer[1], answer[0], media_type="application/json")

    def _due(self) -> dict[str, Any]:
        fault = self.fault
        if fault is None:
            return {}
        if "times" in fault:
            if fault["times"] == 0:
                return {}
            fault["times"] -= 1
        return fault


async def _through(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, bytes]:
    """What an application answers to a request whose body has been read."""
    status, parts = 0, bytearray()

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.extend(message.get("body", b""))

    given: Receive = receive
    taken: Send = send
    await app({**scope, "root_path": "", "path": "/token"}, given, taken)
    return status, bytes(parts)
