"""Transfers: how many there are at once, and how bytes are sent behind what they are."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from google.protobuf.message import Message

    M = TypeVar("M", bound=Message)


class Turns:
    """Bounds the transfers that go on at once: what each holds, all of them hold together.

    Those for the house are counted apart, and wait: no client of the HTTP API keeps them off.
    """

    def __init__(self, most: int) -> None:
        self._clients, self._house = asyncio.Semaphore(most), asyncio.Semaphore(most)

    @asynccontextmanager
    async def of(self, *, house: bool) -> AsyncIterator[None]:
        """Has its body be one of them. Raises RESOURCE_EXHAUSTED at once, but for the house."""
        turns = self._house if house else self._clients
        if not house and turns.locked():
            raise DroverError(
                Reason.RESOURCE_EXHAUSTED,
                "too many files are on their way, try again",
                retry_after=1.0,
            )
        async with turns:
            yield


async def messages(first: M, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[M, None]:
    """The messages of a download: `first`, which says what it is, then its bytes as `data`.

    None is given before there are bytes: what is lost as a whole fails before anything is sent.
    """
    async with aclosing(pieces):
        piece = await anext(pieces, None)
        yield first
        while piece is not None:
            yield type(first)(data=piece)
            piece = await anext(pieces, None)
