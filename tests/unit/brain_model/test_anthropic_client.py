from __future__ import annotations

import asyncio
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import orjson
import pytest

from chassis.secret import Secret
from services.brain.model.anthropic_client import AnthropicModelClient
from services.brain.model.platform import AnthropicApi
from services.brain.model.port import ModelClient, ModelError, ModelErrorKind
from tests.doubles.messages_api import (
    Block,
    Gate,
    MessagesApi,
    Text,
    Thinking,
    ToolUse,
    error,
    message,
    raw,
    running,
    stream_error,
    text,
)

KEY = "sk-ant-test-do-not-tell"
BODY = b'{"model":"m","max_tokens":10,"stream":true,  "messages":[{"role":"user","content":"hi"}]}'


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with running() as double:
        yield double


def _at(base_url: str, key: str = KEY) -> AnthropicApi:
    return AnthropicApi(api_key=Secret(key), base_url=base_url)


@pytest.fixture
async def client(api: MessagesApi) -> AsyncIterator[AnthropicModelClient]:
    async with AnthropicModelClient(_at(api.base_url)) as opened:
        yield opened


async def _collect(client: ModelClient, body: bytes = BODY) -> list[dict[str, Any]]:
    async with client.stream(body) as events:
        return [dict(event) async for event in events]


async def _failure(client: ModelClient, body: bytes = BODY) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await _collect(client, body)
    return caught.value


async def test_the_bytes_arrive_as_they_were_prepared(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.script(text("hello"))
    await _collect(client)
    assert [request.raw for request in api.requests] == [BODY]


async def test_the_headers_are_those_of_the_sdks_own_call(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.default(lambda _request: text("hello"))
    await _collect(client)
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=api.base_url, timeout=600.0) as sdk:
        async for _ in await sdk.messages.create(
            model="m",
            max_tokens=10,
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
        ):
            pass
    ours, theirs = ({**request.headers, "content-length": ""} for request in api.requests)
    assert ours == theirs
    assert ours["authorization"] == "***"


async def test_betas_become_the_header(api: MessagesApi, client: AnthropicModelClient) -> None:
    api.script(text("hello"))
    async with client.stream(BODY, betas=["one-2026-01-01", "two-2026-02-02"]) as events:
        async for _ in events:
            pass
    assert api.requests[0].headers["anthropic-beta"] == "one-2026-01-01,two-2026-02-02"


async def test_events_come_out_as_the_api_sent_them(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    later = {"type": "block_of_a_later_kind", "payload": {"b": 1, "a": 2}}
    api.script(
        message(
            Thinking("hmm", signature="c2ln"),
            Text("hello there", pieces=3),
            Block(later),
            ToolUse("bash", {"command": "true"}, id="toolu_1", pieces=2),
        )
    )
    events = await _collect(client)
    assert [event["type"] for event in events if event["type"] != "content_block_delta"] == [
        "message_start",
        *["content_block_start", "content_block_stop"] * 4,
        "message_delta",
        "message_stop",
    ]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert {"type": "signature_delta", "signature": "c2ln"} in deltas
    assert "".join(delta.get("text", "") for delta in deltas) == "hello there"
    assert "".join(delta.get("partial_json", "") for delta in deltas) == '{"command":"true"}'
    assert later in [event.get("content_block") for event in events]


async def test_pings_comments_and_odd_line_ends_are_no_events(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.script(
        raw(
            b": hello\r\n\r\nevent: ping\r\ndata: {}\r\n\r\n"
            b'event: message_start\r\ndata: {"type":"message_start",\r\ndata: "message":{}}\r\n\r\n'
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
        )
    )
    assert [event["type"] for event in await _collect(client)] == ["message_start", "message_stop"]


async def test_text_is_seen_before_the_message_is_complete(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    gate = Gate()
    api.script(text("hello").stall(gate, after="content_block_delta"))
    async with client.stream(BODY) as events, asyncio.timeout(30):
        async for event in events:
            if event["type"] == "content_block_delta":
                gate.release()
                break
        assert [event["type"] async for event in events][-1] == "message_stop"


async def test_one_connection_serves_request_after_request(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.default(lambda _request: text("hello", pieces=50))
    for _ in range(5):
        await _collect(client)
    assert api.connections == 1


async def test_leaving_early_hangs_up_on_the_model(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    gate = Gate()
    api.script(text("hello").stall(gate, after="content_block_delta"), text("again"))
    async with client.stream(BODY) as events:
        async for event in events:
            if event["type"] == "content_block_delta":
                break
    await api.eventually(lambda: api.requests[0].aborted)
    assert (await _collect(client))[-1]["type"] == "message_stop"


async def test_a_cancelled_turn_hangs_up_on_the_model(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    gate = Gate()
    api.script(text("hello").stall(gate))
    turn = asyncio.create_task(_collect(client))
    await gate.reached()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await api.eventually(lambda: api.requests[0].aborted)


async def test_a_server_that_keeps_the_body_open_does_not_hold_the_turn(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    gate = Gate()
    api.script(text("hello").stall(gate, after="message_stop"))
    async with asyncio.timeout(30):
        assert (await _collect(client))[-1]["type"] == "message_stop"
    assert not api.requests[0].answered


@pytest.mark.parametrize(
    "after", [0, 7, 300, "message_start", "content_block_delta", "message_delta"]
)
async def test_a_stream_cut_anywhere_is_a_lost_connection(
    api: MessagesApi, client: AnthropicModelClient, after: int | str
) -> None:
    api.script(text("hello there").cut(after))
    failure = await _failure(client)
    assert (failure.kind, failure.retryable) == (ModelErrorKind.CONNECTION, True)


async def test_a_stream_that_ends_in_order_but_too_early_is_a_lost_connection(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.script(raw(b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'))
    failure = await _failure(client)
    assert failure.kind is ModelErrorKind.CONNECTION


async def test_the_events_before_a_cut_are_not_lost(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.script(text("hello").cut("content_block_delta"))
    seen = []

    async def watch() -> None:
        async with client.stream(BODY) as events:
            async for event in events:
                seen.append(event["type"])  # noqa: PERF401  # the list must survive the error

    with pytest.raises(ModelError):
        await watch()
    assert seen == ["message_start", "content_block_start", "content_block_delta"]


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("overloaded_error", ModelErrorKind.OVERLOADED),
        ("rate_limit_error", ModelErrorKind.RATE_LIMITED),
        ("api_error", ModelErrorKind.REQUEST_FAILED),
    ],
)
async def test_an_error_event_ends_the_stream_with_its_kind(
    api: MessagesApi, client: AnthropicModelClient, type_: str, kind: ModelErrorKind
) -> None:
    api.script(stream_error(type_, "too much"))
    failure = await _failure(client)
    assert (failure.kind, failure.status, failure.retryable) == (kind, None, True)
    assert "too much" in failure.message


@pytest.mark.parametrize("data", [b"{", b"[]", b'"x"', b"{}"])
async def test_an_event_that_is_no_event_is_an_error_and_no_crash(
    api: MessagesApi, client: AnthropicModelClient, data: bytes
) -> None:
    api.script(raw(b"event: message_start\ndata: " + data + b"\n\n"))
    failure = await _failure(client)
    assert failure.kind is ModelErrorKind.REQUEST_FAILED


async def test_error_statuses_are_mapped_and_never_retried_here(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.script(
        error(529, retry_after=3),
        error(429, retry_after_ms=1_500),
        error(500),
        error(402),
        error(401),
    )
    got = [await _failure(client) for _ in range(5)]
    assert [(f.kind, f.status, f.retry_after, f.retryable) for f in got] == [
        (ModelErrorKind.OVERLOADED, 529, 3.0, True),
        (ModelErrorKind.RATE_LIMITED, 429, 1.5, True),
        (ModelErrorKind.REQUEST_FAILED, 500, None, True),
        (ModelErrorKind.BILLING, 402, None, False),
        (ModelErrorKind.AUTHENTICATION, 401, None, False),
    ]
    assert len(api.requests) == 5


async def test_an_answer_that_is_no_stream_is_refused(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.script(raw(b"<html>", content_type="text/html"))
    failure = await _failure(client)
    assert (failure.kind, failure.retryable) == (ModelErrorKind.REQUEST_FAILED, False)
    assert "text/html" in failure.message


async def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    with running() as gone:
        base_url = gone.base_url
    async with AnthropicModelClient(_at(base_url)) as client:
        failure = await _failure(client)
    assert (failure.kind, failure.retryable) == (ModelErrorKind.CONNECTION, True)


async def test_a_silent_model_is_a_lost_connection(api: MessagesApi) -> None:
    gate = Gate()
    api.script(text("hello").stall(gate, after="message_start"))
    async with AnthropicModelClient(_at(api.base_url), silence=0.05) as client:
        failure = await _failure(client)
    assert failure.kind is ModelErrorKind.CONNECTION


async def test_no_credential_at_all_is_an_authentication_error(
    api: MessagesApi, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    async with AnthropicModelClient(AnthropicApi(base_url=api.base_url)) as client:
        failure = await _failure(client)
    assert (failure.kind, failure.retryable) == (ModelErrorKind.AUTHENTICATION, False)
    assert "ANTHROPIC_API_KEY" in failure.advice
    assert api.requests == []


async def test_the_environment_is_read_as_the_sdk_reads_it(
    api: MessagesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", api.base_url)
    api.script(text("hello"))
    async with AnthropicModelClient() as client:
        await _collect(client)
    assert api.requests[0].headers["authorization"] == "***"


async def test_a_key_quoted_by_the_server_is_struck_out(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.script(error(401, f"no such key: {KEY}"), stream_error("api_error", f"key {KEY}"))
    for _ in range(2):
        failure = await _failure(client)
        assert KEY not in "".join(traceback.format_exception(failure))
        assert KEY not in repr(failure)
        assert "***" in failure.message


async def test_a_key_that_cannot_be_sent_is_not_told(api: MessagesApi) -> None:
    async with AnthropicModelClient(_at(api.base_url, KEY + "\n")) as client:
        failure = await _failure(client)
    assert (failure.kind, failure.retryable) == (ModelErrorKind.REQUEST_FAILED, False)
    assert failure.__context__ is None
    assert failure.__cause__ is None
    assert KEY not in "".join(traceback.format_exception(failure))


async def test_many_turns_at_once_keep_their_answers_apart(
    api: MessagesApi, client: AnthropicModelClient
) -> None:
    api.default(lambda request: text(request.newest_user_text, pieces=3))

    async def turn(number: int) -> str:
        body = orjson.dumps(
            {
                "model": "m",
                "max_tokens": 10,
                "stream": True,
                "messages": [{"role": "user", "content": f"turn {number}"}],
            }
        )
        events = await _collect(client, body)
        return "".join(event.get("delta", {}).get("text", "") for event in events)

    answers = await asyncio.gather(*(turn(number) for number in range(30)))
    assert answers == [f"turn {number}" for number in range(30)]


def test_importing_the_client_does_not_import_the_sdk() -> None:
    program = (
        "import sys, services.brain.model.access, services.brain.model.anthropic_client as m\n"
        "m.AnthropicModelClient()\n"
        "late = ('anthropic', 'botocore', 'google.auth', 'httpx2', 'starlette', 'uvicorn')\n"
        "print([name for name in late if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
