"""Following a call: what its command prints as it comes, then the result."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from services.hands.domain.printed import Chunk, Follower, Printed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from drover.hands.v1.hands_service_pb2 import ExecuteResponse
    from services.hands.under_way import Execution


class Audience:
    """Those who follow a call. None of them is waited for."""

    def __init__(self) -> None:
        self.printed = Printed()
        self._news: set[asyncio.Event] = set()

    def __bool__(self) -> bool:
        return bool(self._news)

    def put(self, data: bytes, dropped: int) -> None:
        """Takes what was printed next, after `dropped` bytes that nobody has any more."""
        self.printed.put(data, dropped)
        for news in self._news:
            news.set()

    @contextmanager
    def joined(self, news: asyncio.Event) -> Iterator[None]:
        """Has `news` set whenever something is printed."""
        self._news.add(news)
        try:
            yield
        finally:
            self._news.discard(news)


async def follow(under_way: Execution) -> AsyncGenerator[Chunk | ExecuteResponse]:
    """What is printed from now on and what is still known of before, and the result at the end.

    Who stops following stops nothing else. Raises what the call does.
    """
    audience, news = under_way.audience, asyncio.Event()
    follower = Follower(audience.printed)

    def ended(_: object) -> None:
        news.set()

    under_way.result.add_done_callback(ended)
    try:
        with audience.joined(news):
            under_way.tell_hand()
            while not under_way.result.done():
                news.clear()
                for chunk in follower.take():
                    yield chunk
                await news.wait()
    finally:
        under_way.result.remove_done_callback(ended)
        under_way.tell_hand()
    for chunk in follower.take(last=True):
        yield chunk
    yield await asyncio.shield(under_way.result)
