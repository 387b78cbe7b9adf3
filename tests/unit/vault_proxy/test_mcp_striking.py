"""A stream that outlives its token: what comes by it has none of the later tokens either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2

from chassis.secret import Secret
from services.vault_proxy.domain.redaction import redaction
from services.vault_proxy.domain.rewriting import Rewriter
from services.vault_proxy.mcp.exchange import Exchange, exchanging
from services.vault_proxy.mcp.limits import Limits
from services.vault_proxy.mcp.transport import ServerTransport

FIRST, SECOND = "tok-first-0123456789", "tok-second-9876543210"
URL = httpx2.URL("https://mcp.example.com/sse")


class Pieces(httpx2.AsyncByteStream):
    """An answer that comes when it is told to."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.queue.get():
            yield piece


class Server(httpx2.AsyncBaseTransport):
    """Answers in one stream, as the older transport has it."""

    def __init__(self) -> None:
        self.pieces = Pieces()
        self.sent: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request.headers.get("authorization", ""))
        if request.method == "POST":
            return httpx2.Response(202)
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=self.pieces)


class Bearer:
    """A token that changes."""

    now: str | None = FIRST

    async def token(self) -> Secret | None:
        return Secret(self.now) if self.now else None

    async def another(self, refused: Secret) -> None:
        return None


async def _told(first: str | None) -> bytes:
    """What the reader of the stream sees; it was opened with that token."""
    server, bearer = Server(), Bearer()
    bearer.now = first
    transport = ServerTransport(server, URL, bearer, Limits())
    with exchanging(Exchange()):
        response = await transport.handle_async_request(httpx2.Request("GET", URL))
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        seen = aiter(response.stream)
        server.pieces.queue.put_nowait(b"data: hello\n\ndata: " + FIRST[:8].encode())
        told = await anext(seen)
        bearer.now = SECOND
        await transport.handle_async_request(httpx2.Request("POST", URL, content=b"{}"))
        for piece in (FIRST[8:], " and ", SECOND[:9], SECOND[9:], "\n\n", ""):
            server.pieces.queue.put_nowait(piece.encode())
        async for bit in seen:
            told += bit
    assert server.sent[-1] == f"Bearer {SECOND}"
    return told


async def test_an_answer_by_a_standing_stream_has_no_later_token() -> None:
    told = await _told(FIRST)
    struck = b"*" * len(FIRST) + b" and " + b"*" * len(SECOND)
    assert told == b"data: hello\n\ndata: " + struck + b"\n\n"


async def test_nor_has_one_by_a_stream_that_was_opened_with_none() -> None:
    told = await _told(None)
    assert told == f"data: hello\n\ndata: {FIRST} and {'*' * len(SECOND)}\n\n".encode()


def test_what_is_held_back_is_looked_at_with_the_next_table() -> None:
    stream = Rewriter(redaction([FIRST]))
    told = stream.feed(b"x " + FIRST[:6].encode())
    stream.turn(redaction([FIRST, SECOND]))
    told += stream.feed(f"{FIRST[6:]} {SECOND} ".encode()) + stream.finish()
    assert told == f"x {'*' * len(FIRST)} {'*' * len(SECOND)} ".encode()
