"""Event streams as their readers see them, and what becomes of the subscription behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2
from drover.session.v1 import preview_pb2
from gateway.main import build
from tests.doubles.platform import Platform, message
from tests.integration.gateway.conftest import Gateway, settings

STREAM = "/v1/sessions/sesn_1/events/stream"
THREAD = "/v1/sessions/sesn_1/threads/sthr_1/stream"


@dataclass
class Frame:
    event: str = ""
    id: str | None = None
    data: Any = None


class Reader:
    """Reads frames off a response, comments apart."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.comments = 0
        self._lines = response.aiter_lines()

    async def frame(self) -> Frame | None:
        """The next frame; None at the end."""
        found, data = Frame(), []
        async with asyncio.timeout(30):
            async for line in self._lines:
                if line.startswith(":"):
                    self.comments += 1
                elif line.startswith("event: "):
                    found.event = line.removeprefix("event: ")
                elif line.startswith("id: "):
                    found.id = line.removeprefix("id: ")
                elif line.startswith("data: "):
                    data.append(line.removeprefix("data: "))
                elif found.event:
                    found.data = orjson.loads("\n".join(data))
                    return found
        return None

    async def comment(self) -> None:
        """Waits for a comment."""
        async with asyncio.timeout(30):
            async for line in self._lines:
                if line.startswith(":"):
                    return

    async def rest(self) -> list[Frame]:
        """All frames up to the end."""
        frames = []
        while (frame := await self.frame()) is not None:
            frames.append(frame)
        return frames


@asynccontextmanager
async def reading(gateway: Gateway, path: str = STREAM, **given: Any) -> AsyncIterator[Reader]:
    async with gateway.http.stream("GET", path, **given) as response:
        assert response.status_code == 200, await response.aread()
        yield Reader(response)


def stamped(number: int) -> event_pb2.Event:
    return message(f"sevt_{number}", f"text {number}", seq=number)


def delta(event_id: str, text: str) -> preview_pb2.Preview:
    preview = preview_pb2.Preview()
    preview.event_delta.event_id = event_id
    preview.event_delta.delta.content.text = text
    return preview


UNAVAILABLE = DroverError(Reason.UNAVAILABLE, "going away")


@pytest.mark.parametrize("path", [STREAM, "/v1/sessions/sesn_1/stream", THREAD])
async def test_headers_are_answered_once_the_subscription_stands(
    gateway: Gateway, path: str
) -> None:
    feed = gateway.platform.sessions
    async with reading(gateway, path) as reader:
        assert feed.opened == 1
        assert reader.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert reader.response.headers["request-id"].startswith("req_01")
        await feed.publish(message("sevt_1", "x"), delta("sevt_2", "he"), stamped(1))
        await feed.end()

        echo, preview, logged = await reader.rest()

    assert (echo.event, echo.id, echo.data["processed_at"]) == ("user.message", None, None)
    assert (preview.event, preview.id) == ("event_delta", None)
    assert (logged.event, logged.id) == ("user.message", "sevt_1")
    assert logged.data["processed_at"] == "2026-09-21T14:13:20.000001Z"


async def test_a_refused_subscription_is_an_answer_and_no_stream(gateway: Gateway) -> None:
    gateway.platform.sessions.failure = DroverError(Reason.NOT_FOUND, "no such session")
    response = await gateway.http.get(STREAM)
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "no such session"


@pytest.mark.parametrize(
    "query",
    [
        "event_deltas[]=agent.tool_use",
        "&".join(["event_deltas[]=agent.message"] * 101),
        "x=1",
        "after=a&after=b",
    ],
)
async def test_parameters_are_checked_before_the_stream_begins(
    gateway: Gateway, query: str
) -> None:
    response = await gateway.http.get(f"{STREAM}?{query}")
    assert response.status_code == 400
    assert gateway.platform.sessions.opened == 0


@pytest.mark.parametrize(
    "given", [{"headers": {"last-event-id": "sevt_2"}}, {"params": {"after": "sevt_2"}}]
)
async def test_a_reader_resumes_behind_what_it_has_seen(gateway: Gateway, given: Any) -> None:
    feed = gateway.platform.sessions
    feed.log = [stamped(number) for number in range(1, 5)]
    async with reading(gateway, **given) as reader:
        await feed.publish(stamped(5))
        await feed.end()
        assert [frame.id for frame in await reader.rest()] == ["sevt_3", "sevt_4", "sevt_5"]


async def test_a_browser_that_comes_back_is_taken_at_its_header(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    feed.log = [stamped(number) for number in range(1, 4)]
    headers = {"last-event-id": "sevt_3"}
    async with reading(gateway, f"{STREAM}?after=sevt_1", headers=headers) as reader:
        await feed.end()
        assert await reader.rest() == []


@pytest.mark.parametrize(
    "given", [{"headers": {"last-event-id": "sevt_9"}}, {"params": {"after": "x"}}]
)
async def test_a_position_that_is_unknown_is_a_400(gateway: Gateway, given: Any) -> None:
    response = await gateway.http.get(STREAM, **given)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"


async def test_a_stream_cut_anywhere_and_resumed_gives_every_event_once(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    feed.log = [stamped(number) for number in range(1, 4)]
    async with gateway.http.stream("GET", f"{STREAM}?after=sevt_1") as response:
        await feed.end()
        whole = await response.aread()
    for cut in range(len(whole) + 1):
        got = whole[:cut].decode().rpartition("\n\n")[0]
        seen = [line[4:] for line in got.split("\n") if line.startswith("id: ")]
        last = seen[-1] if seen else "sevt_1"
        rest = [event.id for event in feed.log if event.seq > int(last.removeprefix("sevt_"))]
        assert seen + rest == ["sevt_2", "sevt_3"]
    for last, left in (("sevt_1", 2), ("sevt_2", 1), ("sevt_3", 0)):
        async with reading(gateway, headers={"last-event-id": last}) as reader:
            await feed.end()
            assert len(await reader.rest()) == left


@pytest.mark.parametrize("path", [STREAM, THREAD])
async def test_a_head_of_a_stream_is_answered_and_leaves_nothing_open(
    gateway: Gateway, path: str
) -> None:
    feed = gateway.platform.sessions
    answer = await gateway.http.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    await feed.until(lambda: feed.opened - feed.cancelled == 0)
    feed.failure = DroverError(Reason.NOT_FOUND, "no such session")
    assert (await gateway.http.head(path)).status_code == 404


class TestKeepAlive:
    @pytest.fixture
    def gateway_settings(self) -> dict[str, Any]:
        return {"keepalive_seconds": 0.05}

    async def test_silence_is_filled_with_comments(self, gateway: Gateway) -> None:
        async with reading(gateway) as reader:
            await reader.comment()
            await reader.comment()


async def test_a_reader_that_leaves_ends_its_subscription(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    async with reading(gateway):
        assert feed.cancelled == 0
    await feed.until(lambda: feed.cancelled == 1)


@pytest.mark.parametrize("path", [STREAM, THREAD])
async def test_a_session_service_that_restarts_is_not_noticed(gateway: Gateway, path: str) -> None:
    feed = gateway.platform.sessions
    feed.log = [stamped(1)]
    async with reading(gateway, path) as reader:
        await feed.publish(stamped(2), message("sevt_9", "waits"))
        assert (await reader.frame()).id == "sevt_2"
        assert (await reader.frame()).id is None
        await gateway.platform.stop("session")
        feed.log.append(stamped(3))
        await gateway.platform.start("session")
        await feed.until(lambda: feed.opened == 2)
        assert feed.last.after_event_id == "sevt_2"
        await feed.publish(message("sevt_9", "waits"), stamped(4))
        await feed.end()
        assert [frame.id for frame in await reader.rest()] == ["sevt_3", "sevt_4"]


@pytest.mark.parametrize("before", [0, 1])
async def test_a_restart_before_the_first_event_loses_none(gateway: Gateway, before: int) -> None:
    feed = gateway.platform.sessions
    feed.log = [stamped(1)][:before]
    async with reading(gateway) as reader:
        await gateway.platform.stop("session")
        feed.log.append(stamped(2))
        await gateway.platform.start("session")
        await feed.until(lambda: feed.opened == 2)
        await feed.end()
        assert [frame.id for frame in await reader.rest()] == ["sevt_2"]


async def test_a_position_that_is_not_known_is_never_guessed(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    feed.marks_position = False
    async with reading(gateway) as reader:
        await feed.end(UNAVAILABLE)
        (frame,) = await reader.rest()
    assert (frame.event, frame.data["error"]["type"]) == ("error", "overloaded_error")
    assert frame.data["request_id"] == reader.response.headers["request-id"]


async def test_events_that_a_resumption_repeats_are_shown_once(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    feed.log = [stamped(1)]
    async with reading(gateway) as reader:
        await feed.publish(stamped(2))
        await feed.publish(stamped(2), stamped(3), stamped(1))
        await feed.end()
        assert [frame.id for frame in await reader.rest()] == ["sevt_2", "sevt_3"]


class TestGivingUp:
    @pytest.fixture
    def gateway_settings(self) -> dict[str, Any]:
        return {"resume_seconds": 0.1}

    async def test_a_service_that_stays_away_ends_the_stream_with_an_error(
        self, gateway: Gateway
    ) -> None:
        feed = gateway.platform.sessions
        feed.log = [stamped(1)]
        async with reading(gateway) as reader:
            await gateway.platform.stop("session")
            (frame,) = await reader.rest()
        assert (frame.event, frame.id) == ("error", None)
        assert frame.data["type"] == "error"
        assert frame.data["error"]["type"] == "overloaded_error"


async def test_what_cannot_go_on_ends_the_stream_with_its_error(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    feed.log = [stamped(1)]
    async with reading(gateway) as reader:
        await feed.end(DroverError(Reason.PERMISSION_DENIED, "no more"))
        (frame,) = await reader.rest()
    assert frame.data["error"] == {"type": "permission_error", "message": "no more"}
    assert feed.opened == 1


async def test_internal_fields_are_on_no_stream(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    event = event_pb2.Event(id="sevt_1", seq=1, thread_id="sthr_1")
    event.agent_thinking.thinking = "secret thoughts"
    async with reading(gateway) as reader:
        await feed.publish(event)
        await feed.end()
        (frame,) = await reader.rest()
    assert frame.data == {"type": "agent.thinking", "id": "sevt_1", "processed_at": None}


async def test_an_event_of_a_later_release_is_passed_over(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    async with reading(gateway) as reader:
        await feed.publish(event_pb2.Event(id="sevt_1", seq=1), stamped(2))
        await feed.end()
        assert [frame.id for frame in await reader.rest()] == ["sevt_2"]
    listed = await gateway.http.get("/v1/sessions/sesn_1/events")
    assert [event["id"] for event in listed.json()["data"]] == ["sevt_2"]


@pytest.mark.parametrize("gateway_settings", [{"stall_seconds": 2.0}])
async def test_a_reader_that_never_reads_is_dropped_and_the_others_go_on(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    host, port = gateway.url.removeprefix("http://").split(":")
    key = gateway.http.headers["x-api-key"]
    _, writer = await asyncio.open_connection(host, int(port), limit=1)
    writer.write(
        f"GET {STREAM} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\n"
        "anthropic-beta: managed-agents-2026-04-01\r\n\r\n".encode()
    )
    await feed.until(lambda: feed.opened == 1)
    async with reading(gateway) as reader:
        for number in range(1, 25):
            await feed.publish(message(f"sevt_{number}", "x" * 1_000_000, seq=number))
        for number in range(1, 25):
            assert (await reader.frame()).id == f"sevt_{number}"
        await feed.until(lambda: feed.cancelled == 1)
        await feed.publish(stamped(25))
        assert (await reader.frame()).id == "sevt_25"
        async with asyncio.timeout(30):
            while "drover_http_open_streams 1.0" not in (await gateway.http.get("/metrics")).text:
                pass
    writer.close()


async def test_a_gateway_that_stops_ends_its_streams_properly(
    tmp_path: Path, platform: Platform
) -> None:
    async with AsyncExitStack() as outer:
        stack = await outer.enter_async_context(AsyncExitStack())
        server = await build(settings(tmp_path, platform), stack)
        host, port = server.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"GET {STREAM} HTTP/1.1\r\nhost: localhost\r\nx-api-key: key-of-the-tests\r\n"
            "anthropic-beta: managed-agents-2026-04-01\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(30):
            await stack.aclose()
        assert await reader.read() == b"0\r\n\r\n"
        writer.close()
        await writer.wait_closed()


async def test_many_readers_see_the_same_events(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(reading(gateway)) for _ in range(20)]
        await feed.publish(*map(stamped, range(1, 11)))
        await feed.end()
        for reader in readers:
            assert [frame.data["id"] for frame in await reader.rest()] == [
                f"sevt_{number}" for number in range(1, 11)
            ]


async def test_readers_that_come_all_at_once_end_up_with_one_subscription(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    feed.log = [stamped(1), stamped(2)]
    async with AsyncExitStack() as stack:
        opening = [stack.enter_async_context(reading(gateway)) for _ in range(20)]
        readers = await asyncio.gather(*opening)
        await feed.until(lambda: feed.opened - feed.cancelled == 1)
        await feed.publish(stamped(3))
        for reader in readers:
            assert (await reader.frame()).id == "sevt_3"


async def test_one_that_is_refused_does_not_keep_the_others_out(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    refused, reader = await asyncio.gather(
        gateway.http.get(STREAM, headers={"last-event-id": "sevt_9"}),
        gateway.http.send(gateway.http.build_request("GET", STREAM), stream=True),
    )
    assert refused.status_code == 400
    await feed.publish(stamped(1))
    assert (await Reader(reader).frame()).id == "sevt_1"
    await reader.aclose()


async def test_sessions_threads_and_previews_are_kept_apart(gateway: Gateway) -> None:
    feed = gateway.platform.sessions
    paths = [STREAM, STREAM.replace("sesn_1", "sesn_2"), THREAD]
    paths += [f"{STREAM}?event_deltas[]={kind}" for kind in ("agent.message", "agent.thinking")]
    async with AsyncExitStack() as stack:
        for path in paths:
            await stack.enter_async_context(reading(gateway, path))
        assert (feed.opened, feed.cancelled) == (len(paths), 0)
        both = "event_deltas[]=agent.thinking&event_deltas[]=agent.message"
        await stack.enter_async_context(reading(gateway, f"{STREAM}?{both}"))
        swapped = "event_deltas[]=agent.message&event_deltas[]=agent.thinking"
        await stack.enter_async_context(reading(gateway, f"{STREAM}?{swapped}"))
        await feed.until(lambda: feed.opened - feed.cancelled == len(paths) + 1)
