"""The bodies of requests: whole, or piece by piece."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Self

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from starlette.requests import Request

IDLE_SECONDS: Final = 30.0
"""How long a client may pause within a request's body, and take for the next `_LEAST` of it."""

_LEAST: Final = 16 * 1024
_MIB: Final = 1024 * 1024


async def read_body(request: Request, limit: int, idle_seconds: float = IDLE_SECONDS) -> bytes:
    """The whole body of a request.

    Raises as `check_head` and `Pieces`, and REQUEST_TOO_LARGE without keeping what is too much.
    """
    check_head(request, limit, limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in Pieces(request, idle_seconds):
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def check_head(request: Request, limit: int, told: int) -> None:
    """Refuses a body for what is said of it before it comes.

    Raises REQUEST_TOO_LARGE for one over `limit` bytes, of which `told` are spoken of, and
    INVALID_ARGUMENT for an encoded one: what a small body unpacks to would have no limit.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in {"", "identity"}:
        raise DroverError(
            Reason.INVALID_ARGUMENT, "content-encoding: a request body is sent without an encoding"
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large(told)


class Pieces:
    """The body of a request as it comes; nothing more is taken in while a piece is dealt with.

    Raises DEADLINE_EXCEEDED when it was waited for for `idle_seconds` and less than 16 KiB, or the
    rest, have come meanwhile, and CANCELLED when the client goes away.
    """

    def __init__(self, request: Request, idle_seconds: float = IDLE_SECONDS) -> None:
        self._request = request
        self._idle_seconds = idle_seconds
        self._more = True
        self._patience, self._came = idle_seconds, 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next piece, which is never empty."""
        while self._more:
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._patience):
                    message = await self._request.receive()
            except TimeoutError:
                raise DroverError(
                    Reason.DEADLINE_EXCEEDED, "the request's body did not arrive in time"
                ) from None
            if message["type"] == "http.disconnect":
                raise DroverError(Reason.CANCELLED, "the client went away")
            self._more = message.get("more_body", False)
            self._patience -= time.monotonic() - began
            if body := message.get("body", b""):
                self._came += len(body)
                if self._came >= _LEAST:
                    self._patience, self._came = self._idle_seconds, 0
                return bytes(body)
        raise StopAsyncIteration


def too_large(limit: int) -> DroverError:
    """REQUEST_TOO_LARGE for what is over `limit` bytes."""
    return DroverError(Reason.REQUEST_TOO_LARGE, f"the request body is over {limit // _MIB} MB")
