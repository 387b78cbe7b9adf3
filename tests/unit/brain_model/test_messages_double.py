"""The end-to-end tests believe the double, so here the official SDK says what it makes of it."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.doubles.messages_api import (
    Block,
    Gate,
    MessagesApi,
    Text,
    Thinking,
    ToolUse,
    Usage,
    error,
    max_tokens,
    message,
    one_tool,
    raw,
    refusal,
    running,
    says,
    text,
    tools,
)

ASK: dict[str, Any] = {
    "model": "m",
    "max_tokens": 10,
    "messages": [{"role": "user", "content": "hi"}],
}


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with running() as double:
        yield double


@pytest.fixture
def sdk(api: MessagesApi) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        api_key="k", base_url=api.base_url, max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


def _streamed(sdk: anthropic.Anthropic, **asked: Any) -> anthropic.types.Message:
    with sdk.messages.stream(**{**ASK, **asked}) as stream:
        return stream.get_final_message()


def test_streamed_and_whole_answers_are_the_same_message(
    api: MessagesApi, sdk: anthropic.Anthropic
) -> None:
    reply = message(
        Thinking("hmm", signature="c2ln", pieces=2),
        Text("hello there", pieces=4),
        ToolUse("bash", {"command": "ls", "n": 2**60}, id="toolu_a", pieces=3),
        ToolUse("read", {}, id="toolu_b"),
        usage=Usage(7, 11, 13, 17),
    )
    api.script(reply, reply)
    whole = sdk.messages.create(**ASK)
    streamed = _streamed(sdk)
    assert whole.stop_reason == "tool_use"
    assert whole.usage.cache_read_input_tokens == 17
    assert {**streamed.to_dict(), "id": ""} == {**whole.to_dict(), "id": ""}


def test_tool_use_ids_are_made_up_where_none_are_given(
    api: MessagesApi, sdk: anthropic.Anthropic
) -> None:
    api.script(tools(ToolUse("bash", {}), ToolUse("bash", {}), say="two"))
    ids = [block.id for block in _streamed(sdk).content if block.type == "tool_use"]
    assert len(set(ids)) == 2
    assert all(id_.startswith("toolu_") for id_ in ids)


def test_stop_reasons_and_details_arrive(api: MessagesApi, sdk: anthropic.Anthropic) -> None:
    api.script(refusal("cyber", "no"), max_tokens("half"))
    refused = _streamed(sdk)
    assert refused.stop_reason == "refusal"
    assert refused.stop_details is not None
    assert refused.stop_details.category == "cyber"
    assert _streamed(sdk).stop_reason == "max_tokens"


def test_broken_tool_input_is_streamed_as_it_stands(api: MessagesApi) -> None:
    api.script(tools(ToolUse("bash", '{"command": "tr')))
    connection = http.client.HTTPConnection(api.base_url.removeprefix("http://"))
    connection.request("POST", "/v1/messages", b'{"stream": true}')
    assert b'{\\"command\\": \\"tr' in connection.getresponse().read()
    connection.close()


def test_errors_carry_their_envelope_and_headers(
    api: MessagesApi, sdk: anthropic.Anthropic
) -> None:
    api.script(error(529, "busy", retry_after=3), error(400, "no", headers={"x-extra": "1"}))
    with pytest.raises(anthropic.APIStatusError) as caught:
        _streamed(sdk)
    assert caught.value.type == "overloaded_error"
    assert caught.value.response.headers["retry-after"] == "3"
    with pytest.raises(anthropic.BadRequestError) as caught:
        _streamed(sdk)
    assert caught.value.response.headers["x-extra"] == "1"


def test_rules_are_asked_in_order_and_each_reply_is_used_once(
    api: MessagesApi, sdk: anthropic.Anthropic
) -> None:
    api.on(says("two"), text("second"))
    api.script(text("first"), text("third"))

    def ask(words: str) -> str:
        content = _streamed(sdk, messages=[{"role": "user", "content": words}]).content[0]
        return content.text if content.type == "text" else ""

    assert [ask("one"), ask("two"), ask("two")] == ["first", "second", "third"]
    assert api.pending == 0


def test_an_unscripted_request_fails_and_is_kept(
    api: MessagesApi, sdk: anthropic.Anthropic
) -> None:
    with pytest.raises(anthropic.BadRequestError, match="no reply"):
        _streamed(sdk)
    assert len(api.unmatched) == 1
    api.default(lambda request: text(str(request.body["max_tokens"])))
    assert "10" in _streamed(sdk).to_json()


def test_requests_are_recorded_without_secrets(api: MessagesApi, sdk: anthropic.Anthropic) -> None:
    api.script(text("ok"))
    _streamed(
        sdk,
        messages=[
            {"role": "user", "content": "do it"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "bash", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}],
            },
        ],
    )
    (request,) = api.requests
    assert request.headers["authorization"] == "***"
    assert request.newest_user_text == "do it"
    assert request.tool_results["t1"]["content"] == "done"
    assert request.answered


async def test_a_stalled_stream_shows_what_came_before(api: MessagesApi) -> None:
    gate = Gate()
    api.script(text("slow").stall(gate, after="content_block_delta"))
    seen = []
    async with anthropic.AsyncAnthropic(api_key="k", base_url=api.base_url) as sdk:
        async for event in await sdk.messages.create(stream=True, **ASK):
            seen.append(event.type)
            if event.type == "content_block_delta":
                await gate.reached()
                assert not api.requests[0].answered
                gate.release()
    assert seen[-1] == "message_stop"


def test_a_cut_reply_breaks_the_connection(api: MessagesApi) -> None:
    api.script(text("hello").cut(20))
    connection = http.client.HTTPConnection(api.base_url.removeprefix("http://"))
    connection.request("POST", "/v1/messages", b'{"stream": true}')
    with pytest.raises(http.client.IncompleteRead) as caught:
        connection.getresponse().read()
    assert caught.value.partial == b"event: message_start"
    connection.close()


def test_raw_bytes_and_unknown_blocks_pass(api: MessagesApi, sdk: anthropic.Anthropic) -> None:
    api.script(message(Block({"type": "redacted_thinking", "data": "eHg="})))
    assert _streamed(sdk).content[0].type == "redacted_thinking"
    api.script(raw(b"anything", content_type="text/plain"))
    connection = http.client.HTTPConnection(api.base_url.removeprefix("http://"))
    connection.request("POST", "/v1/messages", b"{}")
    response = connection.getresponse()
    assert (response.read(), response.headers["content-type"]) == (b"anything", "text/plain")
    connection.close()


def test_one_connection_carries_many_requests_and_other_paths_are_refused(
    api: MessagesApi,
) -> None:
    api.default(lambda _request: text("ok"))
    connection = http.client.HTTPConnection(api.base_url.removeprefix("http://"))
    for _ in range(3):
        connection.request("POST", "/v1/messages?beta=true", b'{"stream":true}')
        assert b"message_stop" in connection.getresponse().read()
    connection.request("GET", "/v1/models")
    assert connection.getresponse().status == 404
    assert api.connections == 1
    connection.close()


def test_the_one_tool_mode_reads_where_the_turn_stands(
    api: MessagesApi, sdk: anthropic.Anthropic
) -> None:
    api.default(one_tool)
    user: dict[str, Any] = {"role": "user", "content": 'say "tool_result" and "assistant"'}
    first = _streamed(sdk, messages=[user])
    assert first.stop_reason == "tool_use"
    call = first.content[0]
    assert call.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": ""}
    done = [
        user,
        {"role": "assistant", "content": [call.to_dict()]},
        {"role": "user", "content": [result]},
    ]
    second = _streamed(sdk, messages=done)
    assert second.stop_reason == "end_turn"
    again = [*done, {"role": "assistant", "content": "done"}, user]
    assert _streamed(sdk, messages=again).stop_reason == "tool_use"


@pytest.mark.parametrize("mode", ["echo", "one_tool"])
def test_it_runs_as_a_process_of_its_own(mode: str) -> None:
    command = [sys.executable, "-m", "tests.doubles.messages_api", "--mode", mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        word, url = process.stdout.readline().split()
        assert word == "ready"
        with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as sdk:
            expected = "tool_use" if mode == "one_tool" else "end_turn"
            assert _streamed(sdk).stop_reason == expected
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
