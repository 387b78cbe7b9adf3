"""Streams of workers end when their keys do, and nobody else's with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.doubles import platform_workers as workers
from tests.integration.gateway.conftest import Gateway
from tests.integration.gateway.test_streams import reading, stamped


@pytest.fixture
def gateway_settings() -> dict[str, Any]:
    return {"recheck_seconds": 0.02, "resume_seconds": 0.2}


def worker(key: str) -> dict[str, Any]:
    return {"headers": {"x-api-key": key}}


def end_key(gateway: Gateway) -> None:
    del gateway.platform.environment_keys.holders[workers.ENVIRONMENT_KEY]


def hand_on_item(gateway: Gateway) -> None:
    gateway.platform.works.items["drover_work_new"] = gateway.platform.works.items.pop(
        workers.WORK_TOKEN
    )


def stop_item(gateway: Gateway) -> None:
    gateway.platform.works.stop(workers.WORK_TOKEN)


@pytest.mark.parametrize(
    ("key", "end"),
    [
        (workers.ENVIRONMENT_KEY, end_key),
        (workers.WORK_TOKEN, hand_on_item),
        (workers.WORK_TOKEN, stop_item),
    ],
)
async def test_an_open_stream_ends_with_the_key_that_opened_it(
    gateway: Gateway, key: str, end: Any
) -> None:
    feed = gateway.platform.sessions
    async with reading(gateway, **worker(key)) as theirs, reading(gateway) as ours:
        await feed.publish(stamped(1))
        assert [(await one.frame()).id for one in (theirs, ours)] == ["sevt_1", "sevt_1"]
        end(gateway)
        (last,) = await theirs.rest()
        assert (last.event, last.data["error"]["type"]) == ("error", "authentication_error")
        assert key not in str(last.data)
        await feed.publish(stamped(2))
        assert (await ours.frame()).id == "sevt_2"


async def test_a_key_that_nobody_can_tell_about_keeps_no_stream_open_for_long(
    gateway: Gateway,
) -> None:
    async with reading(gateway, **worker(workers.ENVIRONMENT_KEY)) as reader:
        await gateway.platform.stop("registry")
        (last,) = await reader.rest()
    assert (last.event, last.data["error"]["type"]) == ("error", "overloaded_error")


async def test_nobody_is_asked_about_a_stream_that_is_closed(gateway: Gateway) -> None:
    keys = gateway.platform.environment_keys
    async with reading(gateway, **worker(workers.ENVIRONMENT_KEY)):
        asked = len(keys.requests)
        async with asyncio.timeout(30):
            while len(keys.requests) < asked + 2:
                await gateway.http.get("/healthz")
    metrics = "drover_http_open_streams 0.0"
    async with asyncio.timeout(30):
        while metrics not in (await gateway.http.get("/metrics")).text:
            pass
    asked = len(keys.requests)
    await gateway.http.get("/v1/environments/env_1/work/poll", **worker(workers.ENVIRONMENT_KEY))
    assert len(keys.requests) <= asked + 2  # the poll's own, and one that was under way
