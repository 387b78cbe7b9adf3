"""A turn of a whole stack whose models are a cloud's, signed as that wants it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.doubles.platform_api import EVENT_STREAM, Answer, chunk, cloud
from tests.doubles.scripted_model import Raw, response, text, tool
from tests.e2e.driving import TOOLSET, new_session, run_turn, texts
from tests.e2e.stack import Stack, running_stack

SECRET = "do-not-tell-0123456789"  # noqa: S105  # a made-up one


def _answer(events: list[Raw]) -> Answer:
    return Answer(tuple(chunk(event) for event in events), EVENT_STREAM)


def _turn(stack: Stack) -> list[str]:
    with stack.client() as client:
        session = new_session(client, tools=[TOOLSET])
        return texts(run_turn(client, session.id, "work"), "agent.message")


async def test_a_turn_on_bedrock_runs_its_tool_and_tells_no_credential(tmp_path: Path) -> None:
    async with cloud() as served:
        served.answers += [
            _answer(response(tool("bash", {"command": "true"}))),
            _answer(response(text("Done."))),
        ]
        starting = running_stack(
            tmp_path,
            brains=1,
            DROVER_MODEL_PROVIDER="bedrock",
            ANTHROPIC_BEDROCK_BASE_URL=served.base_url,
            AWS_REGION="eu-test-1",
            AWS_ACCESS_KEY_ID="AKIATEST",
            AWS_SECRET_ACCESS_KEY=SECRET,
        )
        stack = await asyncio.to_thread(starting.__enter__)
        try:
            assert await asyncio.to_thread(_turn, stack) == ["Done."]
            assert stack.model.requests == []
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)
        for asked in served.asked:
            assert asked.path.endswith("/invoke-with-response-stream")
            assert "/eu-test-1/bedrock/aws4_request" in asked.headers["authorization"]
        assert len(served.asked) == 2
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(SECRET.encode() in content for content in written)
