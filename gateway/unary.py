"""The endpoint of every transcoded route: JSON in, one RPC, JSON out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from chassis.errors import DroverError, Reason
from gateway import idempotency
from gateway.access import check_request
from gateway.errors import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from chassis.clock import Clock
    from gateway.auth import Caller
    from gateway.idempotency import RequestKeys
    from gateway.transcode.encode import ObjectEncoder
    from gateway.transcode.routes import Route
    from gateway.upstream import Unary

IDLE_SECONDS: Final = 30.0
"""How long a client may pause within a request's body."""


class UnaryEndpoint:
    """Serves one route of the contract by one call of its RPC.

    A request body over `max_body` bytes is refused as soon as that is known.
    """

    def __init__(
        self,
        route: Route,
        call: Unary,
        encoder: ObjectEncoder,
        max_body: int,
        *,
        keys: RequestKeys,
        clock: Clock,
    ) -> None:
        self._route = route
        self._call = call
        self._encoder = encoder
        self._max_body = max_body
        self._keys = keys
        self._clock = clock

    async def __call__(self, request: Request, path: Mapping[str, str]) -> Response:
        """The answer. Raises `DroverError`."""
        route, received_at = self._route, self._clock.now()
        caller: Caller = request.state.caller
        body = b"" if route.verb == "GET" else await read_body(request, self._max_body)
        key = None
        if route.changes:
            key = self._keys.of(caller, request, body, received_at)
        query = request.scope["query_string"]
        message = route.request.decode(path, query, request.headers, body)
        check_request(caller, message)
        answer, replayed = await self._call(message, key)
        headers = {idempotency.REPLAYED: "true"} if replayed else None
        if route.shown:
            if not answer.HasField(route.shown):
                return Response(b"null", headers=headers, media_type=JSON)
            answer = getattr(answer, route.shown)
        return Response(self._encoder.encode(answer) or b"null", headers=headers, media_type=JSON)


async def read_body(request: Request, limit: int, idle_seconds: float = IDLE_SECONDS) -> bytes:
    """The whole body of a request.

    Raises REQUEST_TOO_LARGE without keeping what is too much, DEADLINE_EXCEEDED when nothing of it
    comes for `idle_seconds`, and INVALID_ARGUMENT for an encoded one: what a small body unpacks to
    would have no limit.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in {"", "identity"}:
        raise DroverError(
            Reason.INVALID_ARGUMENT, "content-encoding: a request body is sent without an encoding"
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(idle_seconds) as patience:
            async for chunk in request.stream():
                patience.reschedule(now() + idle_seconds)
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except ClientDisconnect:
        raise DroverError(Reason.CANCELLED, "the client went away") from None
    except TimeoutError:
        raise DroverError(
            Reason.DEADLINE_EXCEEDED, "the request's body did not arrive in time"
        ) from None
    return b"".join(chunks)


def _too_large(limit: int) -> DroverError:
    return DroverError(
        Reason.REQUEST_TOO_LARGE, f"the request body is over {limit // (1024 * 1024)} MB"
    )
