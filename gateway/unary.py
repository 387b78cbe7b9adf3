"""The endpoint of every transcoded route: JSON in, one RPC, JSON out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from gateway import idempotency, scopes
from gateway.access import check_request
from gateway.actor import signer
from gateway.body import read_body
from gateway.errors import JSON

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from starlette.requests import Request

    from chassis.clock import Clock
    from gateway.auth import Caller
    from gateway.idempotency import RequestKeys
    from gateway.transcode.encode import ObjectEncoder
    from gateway.transcode.routes import Route
    from gateway.upstream import Unary
    from gateway.watch import Watches


class UnaryEndpoint:
    """Serves one route of the contract by one call of its RPC.

    A request body over `max_body` bytes is refused as soon as that is known. Scopes of API keys
    are about one of the `areas`.
    """

    def __init__(
        self,
        route: Route,
        call: Unary,
        encoder: ObjectEncoder,
        max_body: int,
        *,
        keys: RequestKeys,
        areas: Collection[str],
        watches: Watches,
        clock: Clock,
    ) -> None:
        self._route = route
        self._call = call
        self._encoder = encoder
        self._max_body = max_body
        self._keys = keys
        self._watches = watches
        self._clock = clock
        self._sign = signer(route.method.input_type)
        self._prepare = scopes.preparing(route, areas)

    async def __call__(self, request: Request, path: Mapping[str, str]) -> Response:
        """The answer. Raises `DroverError`."""
        route, received_at = self._route, self._clock.now()
        caller: Caller = request.state.caller
        body = b""
        if route.verb != "GET":
            began = self._clock.monotonic()
            body = await read_body(request, self._max_body)
            await self._watches.confirm(caller, began)
        key = None
        if route.changes:
            key = self._keys.of(caller, request, body, received_at)
        query = request.scope["query_string"]
        message = route.request.decode(path, query, request.headers, body)
        check_request(caller, message)
        if self._sign is not None:
            self._sign(message, caller)
        if self._prepare is not None:
            self._prepare(message)
        answer, replayed = await self._call(message, key)
        headers = {idempotency.REPLAYED: "true"} if replayed else None
        if route.shown:
            if not answer.HasField(route.shown):
                return Response(b"null", headers=headers, media_type=JSON)
            answer = getattr(answer, route.shown)
        return Response(self._encoder.encode(answer) or b"null", headers=headers, media_type=JSON)
