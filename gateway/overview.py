"""What operators ask of a whole installation: its processes, and how a client gets to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.responses import Response, StreamingResponse

from gateway.errors import JSON
from gateway.scopes import ADMIN
from gateway.sse import HEADERS, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request

    from chassis.clock import Clock
    from gateway.auth import Caller
    from gateway.processes import Processes

TICKS: Final = 4
TICK_SECONDS: Final = 0.25


class Overview:
    """`/status`: which release this gateway is of, whose key was shown, and every process.

    The processes are told to keys with the scope `admin` only: they are the installation's, not a
    workspace's.
    """

    def __init__(self, processes: Processes, version: str, clock: Clock) -> None:
        self._processes = processes
        self._version = version
        self._clock = clock
        self._started = clock.now()

    async def __call__(self, request: Request, _path: Mapping[str, str]) -> Response:
        """The state of the installation now."""
        caller: Caller = request.state.caller
        processes = None
        if ADMIN in caller.scopes:
            processes = [one.shown() for one in await self._processes.look()]
        body: dict[str, Any] = {
            "type": "status",
            "version": self._version,
            "started_at": self._started.isoformat(),
            "key": {
                "id": caller.key_id,
                "workspace_id": caller.workspace_id,
                "scopes": sorted(caller.scopes),
                "expires_at": None if caller.expires_at is None else caller.expires_at.isoformat(),
            },
            "processes": processes,
            "now": self._clock.now().isoformat(),
        }
        return Response(orjson.dumps(body), media_type=JSON)


async def ticking(_request: Request, _path: Mapping[str, str]) -> StreamingResponse:
    """`/status/stream`: a few events with pauses, to see if something on the way holds them up."""
    headers = {name.decode(): value.decode() for name, value in HEADERS}
    return StreamingResponse(_ticks(), headers=headers)


async def _ticks() -> AsyncIterator[bytes]:
    for number in range(TICKS):
        if number:
            await asyncio.sleep(TICK_SECONDS)
        yield write({"type": "tick", "number": number})
