"""F15: a model's stream cut after k bytes, for every k of a stream with thinking, text and calls.

The stream is a real HTTP answer of the double, taken by the client that production uses. For the
client it is cut at every byte; whole turns, of a brain beside doubles of the session service and
the hands, are cut at a share of them and around the end of every line, in a soak at every byte.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest

from chassis.secret import Secret
from drover.event.v1.session_event_pb2 import RETRY_STATUS_TYPE_RETRYING
from services.brain.loop.pool import BrainPool
from services.brain.model.anthropic_client import AnthropicModelClient
from services.brain.model.platform import AnthropicApi
from services.brain.model.port import ModelError, ModelErrorKind
from tests.doubles.lease_service import FakeSession
from tests.doubles.messages_api import (
    MessagesApi,
    Reply,
    Request,
    Text,
    Thinking,
    ToolUse,
    Usage,
    message,
    running,
    text,
)
from tests.doubles.soak import share
from tests.integration.brain import conftest
from tests.integration.brain.conftest import Rig

rig = conftest.rig

AT_ONCE = 16
"""Sessions that work beside each other."""

RECORDED = message(
    Thinking("Hm.", signature="c2ln"),
    Text("I look.", pieces=2),
    ToolUse("bash", {"command": "ls"}, id="toolu_1", pieces=2),
    ToolUse("read", {"file_path": "a"}, id="toolu_2"),
    usage=Usage(input_tokens=100, output_tokens=50),
)
AFTERWARDS = text("Done.", usage=Usage(input_tokens=7, output_tokens=3))
STREAM = RECORDED.body(True, lambda prefix: f"{prefix}_{0:024d}")
LENGTH = len(STREAM)
BODY = (
    b'{"model":"m","max_tokens":9,"stream":true,'
    b'"messages":[{"role":"user","content":"cut at %d."}]}'
)


class Cuts:
    """Answers each session's first request with the recorded stream, cut where its message says."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = defaultdict(int)

    def answer(self, request: Request) -> Reply:
        found = re.search(rb"cut at (\d+)\.", request.raw)
        assert found is not None
        at = int(found[1])
        self.asked[at] += 1
        return RECORDED.cut(at) if self.asked[at] == 1 else AFTERWARDS


def places() -> list[int]:
    """Where whole turns are cut: a share of all bytes, and around every line's end."""
    step = max(1, round(1 / share(1.0)))
    ends = [at for at in range(LENGTH) if STREAM[at : at + 1] == b"\n"]
    around = {at + by for at in ends for by in (0, 1) if at + by < LENGTH}
    return sorted(around | set(range(0, LENGTH, step)))


@pytest.fixture
async def client() -> AsyncIterator[AnthropicModelClient]:
    with running(MessagesApi(Cuts().answer)) as api:
        platform = AnthropicApi(api_key=Secret("key"), base_url=api.base_url)
        async with AnthropicModelClient(platform) as opened:
            yield opened


@pytest.fixture
async def brain(rig: Rig, client: AnthropicModelClient) -> BrainPool:
    rig.model = client  # type: ignore[assignment]  # the port is all that is used of it
    return await rig.brain(max_sessions=2 * AT_ONCE)


@pytest.mark.timeout(300)
async def test_f15_a_stream_cut_after_any_byte_is_a_lost_connection_behind_whole_events(
    client: AnthropicModelClient,
) -> None:
    whole = [json.loads(line[6:]) for line in STREAM.splitlines() if line.startswith(b"data: ")]
    for at in range(LENGTH):
        seen: list[str] = []
        with pytest.raises(ModelError) as caught:
            await _read(client, BODY % at, seen)
        assert (caught.value.kind, caught.value.retryable) == (ModelErrorKind.CONNECTION, True)
        assert seen == [event["type"] for event in whole[: STREAM[:at].count(b"\n\n")]]


async def _read(client: AnthropicModelClient, body: bytes, seen: list[str]) -> None:
    async with client.stream(body) as events:
        async for event in events:
            seen.append(event["type"])  # noqa: PERF401  # kept when the stream breaks


async def _cut(rig: Rig, brain: BrainPool, at: int) -> FakeSession:
    session = rig.session()
    session.message(f"cut at {at}.")
    await rig.wake(session, brain)
    return session


@pytest.mark.timeout(300)
async def test_f15_a_stream_cut_after_any_byte_runs_no_half_call_and_is_made_again(
    rig: Rig, brain: BrainPool
) -> None:
    cuts = iter(places())
    sessions: dict[int, FakeSession] = {}

    async def work() -> None:
        for at in cuts:
            sessions[at] = await _cut(rig, brain, at)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())
    assert rig.hands.ran == []
    for session in sessions.values():
        _holds(session)


def _holds(session: FakeSession) -> None:
    """The cut is told, nothing of the response is in the log, and its tokens count once."""
    kinds = session.kinds
    assert "agent_tool_use" not in kinds
    assert "agent_thinking" not in kinds
    assert kinds.count("agent_message") == 1
    (told,) = session.of("session_error")
    error = told.session_error.error
    assert error.HasField("model_request_failed_error")
    assert error.retry_status.type == RETRY_STATUS_TYPE_RETRYING
    assert kinds.count("session_status_rescheduled") == 1
    failed, made = (end.span_model_request_end for end in session.of("span_model_request_end"))
    assert (failed.is_error, made.is_error) == (True, False)
    assert failed.model_usage.input_tokens in (0, 100)
    assert failed.model_usage.output_tokens in (0, 1, 50)
    usage = session.of("session_usage")[-1].session_usage.usage
    assert usage.input_tokens == failed.model_usage.input_tokens + 7
    assert usage.output_tokens == failed.model_usage.output_tokens + 3
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_f15_a_stream_cut_behind_its_last_byte_is_whole_and_each_call_runs_once(
    rig: Rig, brain: BrainPool
) -> None:
    session = await _cut(rig, brain, LENGTH)
    assert session.of("session_error") == []
    assert len(rig.hands.ran) == 2
    assert {call.name for call in rig.hands.requests} == {"bash", "read"}
    usage = session.of("session_usage")[-1].session_usage.usage
    assert (usage.input_tokens, usage.output_tokens) == (107, 53)
