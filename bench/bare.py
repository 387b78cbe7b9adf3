"""What a stream's fan-out is measured against: starlette with a queue for each reader, no more.

A process of its own (`python -m bench.bare PORT`). `POST /publish` sends `frames` of `size` bytes
to everybody: `together` at a time, at `rate` such lots a second, or as quickly as it can for 0.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from bench.readers import mark


class Broadcast:
    """Everybody's queues."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[bytes]] = set()

    async def stream(self, _request: Request) -> StreamingResponse:
        """Follows what is published from now on."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queues.add(queue)

        async def frames() -> AsyncIterator[bytes]:
            try:
                yield b": welcome\n\n"
                while True:
                    yield await queue.get()
            finally:
                self._queues.discard(queue)

        return StreamingResponse(frames(), media_type="text/event-stream")

    async def publish(self, request: Request) -> JSONResponse:
        """Publishes."""
        told = await request.json()
        size, together, rate = told["size"], told["together"], told["rate"]
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for number in range(told["frames"] // together):
            for _ in range(together):
                frame = _frame(size)
                for queue in self._queues:
                    queue.put_nowait(frame)
            await asyncio.sleep(max(0, begin + (number + 1) / rate - loop.time()) if rate else 0)
        return JSONResponse({})


def _frame(size: int) -> bytes:
    head, tail = b'event: agent.message\nid: sevt_0\ndata: {"text":"%b' % mark().encode(), b'"}\n\n'
    return head + b"x" * (size - len(head) - len(tail)) + tail


def main() -> None:
    """Serves on the port that is given."""
    broadcast = Broadcast()
    app = Starlette(
        routes=[
            Route("/stream", broadcast.stream),
            Route("/publish", broadcast.publish, methods=["POST"]),
        ]
    )
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        timeout_keep_alive=600,
        access_log=False,
    )


if __name__ == "__main__":
    main()
