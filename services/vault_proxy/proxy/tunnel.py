"""Bytes both ways, unread: an upgraded WebSocket, or a tunnel that the operator leaves opaque."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from services.vault_proxy.proxy.body import PIECE
from services.vault_proxy.proxy.wire import LateError, LostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from services.vault_proxy.domain.ports import Stream
    from services.vault_proxy.proxy.limits import Limits
    from services.vault_proxy.proxy.wire import Wire

PAUSE: Final = 0.05
"""Seconds after which what could be the beginning of a value is taken for the end of a message."""


async def tunnel(
    client: Wire,
    server: Wire,
    limits: Limits,
    still_allowed: Callable[[], Awaitable[bool]],
    redaction: Callable[[], Stream | None] = lambda: None,
) -> None:
    """Passes bytes until both sides have ended, one breaks, or it is allowed no more.

    It is asked again every second, since a tunnel has no next request (case E16). What comes from
    the server goes through `redaction`, whose streams do not change lengths.
    """
    last = _Activity()

    async def watch() -> None:
        while await still_allowed():  # noqa: ASYNC110  # nobody tells: it may be another process
            await asyncio.sleep(limits.recheck_seconds)
        raise LostError

    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            up = group.create_task(_pass(client, server, limits, last, lambda: None))
            await group.create_task(_pass(server, client, limits, last, redaction))
            await up
            watching.cancel()
    except* (LostError, LateError):
        client.abort()
        server.abort()
    else:
        client.close()
        server.close()


class _Activity:
    """When anything last passed, either way."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.at = self._loop.time()

    def noted(self) -> float:
        """Now."""
        self.at = self._loop.time()
        return self.at


async def _pass(
    source: Wire,
    target: Wire,
    limits: Limits,
    last: _Activity,
    redaction: Callable[[], Stream | None],
) -> None:
    """One way, until the source has ended."""
    stream, held = redaction(), 0
    while True:
        now = asyncio.get_running_loop().time()
        try:
            piece = await source.some(
                PIECE, now + PAUSE if held else last.at + limits.tunnel_seconds
            )
        except LateError:
            if held and stream is not None:
                target.write(stream.finish())
                stream, held = redaction(), 0
                continue
            if last.at > now:
                continue  # something passed the other way
            raise
        if not piece:
            break
        until = last.noted() + limits.piece_seconds
        if stream is not None:
            passed = stream.feed(piece)
            held += len(piece) - len(passed)
            piece = passed
        target.write(piece)
        await target.drain(until)
    if stream is not None:
        target.write(stream.finish())
    target.finish()
