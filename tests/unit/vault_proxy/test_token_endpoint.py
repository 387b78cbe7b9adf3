from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from chassis.clock import SystemClock
from chassis.secret import Secret
from services.vault_proxy.domain.server_credential import NewTokens, Refresh
from services.vault_proxy.oauth.endpoint import (
    ExchangeFailedError,
    ExchangeRefusedError,
    TokenEndpoints,
)

REFRESH = Refresh(
    client_id="drover",
    token_endpoint="https://login.example.com/token",
    client_auth="none",
    client_secret=None,
    refresh_token=Secret("rt-old"),
)

Answer = Callable[[httpx2.Request], httpx2.Response]


async def _exchanged(answer: Answer, *, seconds: float = 5) -> NewTokens:
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        return await TokenEndpoints(client, SystemClock(), seconds=seconds).exchange(REFRESH)


async def test_a_token_may_come_without_its_end_and_without_another_refresh_token() -> None:
    tokens = await _exchanged(lambda _: httpx2.Response(200, json={"access_token": "at"}))
    assert (tokens.access_token.open(), tokens.expires_at, tokens.refresh_token) == (
        "at",
        None,
        None,
    )


@pytest.mark.parametrize(("given", "seconds"), [(60, 60), (-5, 0), (10**12, 315_360_000)])
async def test_the_end_is_in_bounds_whatever_is_said(given: int, seconds: int) -> None:
    answer = {"access_token": "at", "token_type": "bearer", "expires_in": given}
    tokens = await _exchanged(lambda _: httpx2.Response(200, json=answer))
    assert tokens.expires_at is not None
    off = tokens.expires_at - datetime.now(UTC) - timedelta(seconds=seconds)
    assert abs(off) < timedelta(seconds=30)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_refusal_is_one(status: int) -> None:
    with pytest.raises(ExchangeRefusedError) as refused:
        await _exchanged(lambda _: httpx2.Response(status, json={"error": "invalid_client"}))
    assert "invalid_client" in refused.value.message
    assert refused.value.reply is not None
    assert refused.value.reply.status == status


@pytest.mark.parametrize("status", [302, 408, 429, 500, 503])
async def test_trouble_is_none(status: int) -> None:
    with pytest.raises(ExchangeFailedError) as failed:
        await _exchanged(lambda _: httpx2.Response(status))
    assert failed.value.reached


async def test_an_error_in_odd_words_is_told_by_its_status() -> None:
    with pytest.raises(ExchangeRefusedError, match="HTTP 400"):
        await _exchanged(lambda _: httpx2.Response(400, json={"error": "<script>"}))


async def test_an_endpoint_that_comes_to_no_end_is_left() -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.001)
            yield b" "

    with pytest.raises(ExchangeFailedError, match="took more than") as failed:
        await _exchanged(lambda _: httpx2.Response(200, content=drip()), seconds=0.1)
    assert failed.value.reached


async def test_who_was_not_reached_has_not_got_the_token() -> None:
    def refuse(_request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no")

    with pytest.raises(ExchangeFailedError) as failed:
        await _exchanged(refuse)
    assert not failed.value.reached
