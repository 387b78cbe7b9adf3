from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.brain.model.rehearsal import encoding
from services.brain.model.rehearsal.script import NOTICE, Answer, Call
from services.brain.model.rehearsal.server import rehearsal_server

BASH: dict[str, Any] = {"name": "bash", "input_schema": {"type": "object"}}
ASK: dict[str, Any] = {
    "model": "claude-anything",
    "max_tokens": 1_000,
    "messages": [{"role": "user", "content": "run `echo 1` and `echo 2` at once"}],
    "tools": [BASH],
}


@pytest.fixture
async def sdk() -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with (
        rehearsal_server() as base_url,
        anthropic.AsyncAnthropic(
            api_key="k", base_url=base_url, max_retries=0, _strict_response_validation=True
        ) as client,
    ):
        yield client


async def _streamed(sdk: anthropic.AsyncAnthropic, **asked: Any) -> anthropic.types.Message:
    async with sdk.messages.stream(**{**ASK, **asked}) as stream:
        return await stream.get_final_message()


async def test_streamed_and_whole_answers_are_the_same_message(
    sdk: anthropic.AsyncAnthropic,
) -> None:
    streamed = await _streamed(sdk)
    whole = await sdk.messages.create(**ASK)
    assert streamed.to_dict() == whole.to_dict()
    assert whole.model == "claude-anything"
    assert whole.stop_reason == "tool_use"
    assert [block.input for block in whole.content if block.type == "tool_use"] == [
        {"command": "echo 1"},
        {"command": "echo 2"},
    ]


async def test_text_is_streamed_in_several_pieces(sdk: anthropic.AsyncAnthropic) -> None:
    asked = {**ASK, "messages": [{"role": "user", "content": "hello"}]}
    async with sdk.messages.stream(**asked) as stream:
        pieces = [piece async for piece in stream.text_stream]
    assert len(pieces) > 5
    assert "".join(pieces).endswith(NOTICE)


async def test_ids_differ_between_requests_and_repeat_for_the_same(
    sdk: anthropic.AsyncAnthropic,
) -> None:
    first, again = await _streamed(sdk), await _streamed(sdk)
    other = await _streamed(sdk, system="another")
    ids = [block.id for block in first.content if block.type == "tool_use"]
    assert len(set(ids)) == 2
    assert first.to_dict() == again.to_dict()
    assert other.id != first.id


async def test_usage_grows_with_the_text(sdk: anthropic.AsyncAnthropic) -> None:
    short = await _streamed(sdk)
    long = await _streamed(sdk, system="x" * 4_000)
    assert long.usage.input_tokens - short.usage.input_tokens == pytest.approx(1_000, abs=2)
    assert short.usage.output_tokens > 10


async def test_max_tokens_ends_the_answer(sdk: anthropic.AsyncAnthropic) -> None:
    cut = await _streamed(sdk, max_tokens=3)
    assert cut.stop_reason == "max_tokens"
    assert cut.usage.output_tokens == 3
    assert [block.type for block in cut.content] == ["text"]


@pytest.mark.parametrize(
    "wrong",
    [{"max_tokens": 0}, {"messages": []}, {"model": 3}, {"stop_sequences": ["x"]}],
)
async def test_a_request_it_cannot_serve_is_refused_in_the_envelope(
    sdk: anthropic.AsyncAnthropic, wrong: dict[str, Any]
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        await sdk.messages.create(**{**ASK, **wrong})
    assert caught.value.type == "invalid_request_error"
    assert next(iter(wrong)) in caught.value.message


async def test_other_paths_are_refused_in_the_envelope(sdk: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        await sdk.models.list()
    assert caught.value.type == "not_found_error"


async def test_many_requests_at_once_are_served(sdk: anthropic.AsyncAnthropic) -> None:
    answers = await asyncio.gather(*(_streamed(sdk) for _ in range(20)))
    assert len({message.id for message in answers}) == 1


async def test_the_server_leaves_the_process_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with rehearsal_server():
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_an_error_inside_the_block_comes_out_as_it_is() -> None:
    async def fail() -> None:
        async with rehearsal_server():
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()


@given(st.text(), st.text(max_size=3_000))
def test_the_deltas_of_a_stream_add_up_to_the_message(text: str, argument: str) -> None:
    body = {"model": "m", "max_tokens": 10_000, "messages": []}
    whole = encoding.message(Answer(text, (Call("bash", {"command": argument}),)), body)
    said, called = "", ""
    for frame in encoding.stream(whole):
        event = encoding.orjson.loads(frame.split(b"data: ", 1)[1])
        delta = event.get("delta", {})
        said += delta.get("text", "")
        called += delta.get("partial_json", "")
    assert said == text
    assert encoding.orjson.loads(called) == {"command": argument}
