"""Reading a request's body, whole and piece by piece."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request

from chassis.errors import DroverError, Reason
from gateway.body import read_body

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Message


def request(chunks: Iterable[bytes]) -> Request:
    """A request whose client sends these chunks and then nothing more."""
    left = iter(chunks)

    async def receive() -> Message:
        for chunk in left:
            return {"type": "http.request", "body": chunk, "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def test_a_body_that_trickles_is_not_waited_for_either() -> None:
    async def trickle() -> Message:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        return {"type": "http.request", "body": b"x", "more_body": True}

    slow = Request({"type": "http", "method": "POST", "headers": []}, trickle)
    with pytest.raises(DroverError) as refused:
        await read_body(slow, 15_000, idle_seconds=0.02)
    assert refused.value.reason is Reason.DEADLINE_EXCEEDED


async def test_a_body_that_stops_half_way_is_not_waited_for_without_end() -> None:
    with pytest.raises(DroverError) as refused:
        await read_body(request([b"{"]), 10, idle_seconds=0.01)
    assert refused.value.reason is Reason.DEADLINE_EXCEEDED
