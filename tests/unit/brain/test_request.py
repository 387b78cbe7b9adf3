"""What the model is sent: prefix, tools, breakpoints, options."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from drover.agent.v1.agent_pb2 import SessionAgent
from drover.agent.v1.model_pb2 import (
    EFFORT_LEVEL_HIGH,
    EFFORT_LEVEL_MAX,
    MODEL_SPEED_FAST,
    Effort,
    ModelConfig,
)
from drover.agent.v1.tool_pb2 import AgentToolset, Tool
from drover.event.v1.content_pb2 import (
    Base64Source,
    Citations,
    ContentBlock,
    DocumentBlock,
    DocumentSource,
    ImageBlock,
    ImageSource,
    PlainTextSource,
    RedactedBlock,
    SearchResultBlock,
    SearchResultContent,
    UrlSource,
)
from drover.event.v1.event_pb2 import Event
from drover.event.v1.user_event_pb2 import UserMessage
from drover.session.v1.session_pb2 import Session
from services.brain.domain import content, events
from services.brain.domain.transcript import Transcript
from tests.unit.brain import logs
from tests.unit.brain.logs import HARNESS, fold

BREAKPOINT = {"type": "ephemeral"}


def request(agent: SessionAgent, *log: Event) -> dict[str, Any]:
    session = Session(id="sesn_1", primary_thread_id="sthr_1", agent=agent)
    body: dict[str, Any] = json.loads(HARNESS.request(fold(session, log)).body)
    return body


def test_request_has_model_system_tools_and_breakpoints() -> None:
    body = request(logs.agent(), logs.message("Hi"))
    assert body["model"] == "claude-test"
    assert body["stream"] is True
    assert [tool["name"] for tool in body["tools"]] == [
        "bash",
        "read",
        "write",
        "edit",
        "glob",
        "grep",
    ]
    assert body["system"][0] == {"type": "text", "text": "Be brief."}
    assert "/mnt/session/outputs" in body["system"][1]["text"]
    assert body["system"][-1]["cache_control"] == BREAKPOINT
    assert body["messages"][0]["content"][-1]["cache_control"] == BREAKPOINT
    assert set(body) == {"model", "max_tokens", "stream", "tools", "system", "messages"}


def test_agent_without_tools_hears_nothing_of_a_sandbox() -> None:
    agent = SessionAgent(model=ModelConfig(id="claude-test"), system="Hi.")
    body = request(agent, logs.message("Hi"))
    assert body["system"] == [{"type": "text", "text": "Hi.", "cache_control": BREAKPOINT}]
    assert "tools" not in body
    bare = request(SessionAgent(model=ModelConfig(id="claude-test")), logs.message("Hi"))
    assert "system" not in bare


def test_prefix_without_a_system_prompt_is_cached_behind_the_tools() -> None:
    agent = SessionAgent(model=ModelConfig(id="m"), tools=logs.every_kind_of_tool()[1:])
    body = request(agent, logs.message("Hi"))
    assert body["tools"][-1]["cache_control"] == BREAKPOINT


def test_disabled_tools_are_not_offered() -> None:
    tools = request(logs.agent(*logs.every_kind_of_tool()), logs.message("Hi"))["tools"]
    assert [tool["name"] for tool in tools] == ["bash", "read", "write", "glob", "grep", "ask_user"]


@pytest.mark.parametrize(
    ("model_id", "adaptive"),
    [
        ("claude-opus-5", True),
        ("claude-opus-4-6", True),
        ("claude-sonnet-5-5", True),
        ("anthropic.claude-opus-4-8-v1:0", True),
        ("claude-haiku-4-5", False),
        ("claude-sonnet-4-5-20250929", False),
        ("claude-opus-4-20250514", False),
        ("qwen-3", False),
    ],
)
def test_thinking_is_asked_for_where_the_model_has_it(model_id: str, adaptive: bool) -> None:
    body = request(logs.agent(model_id=model_id), logs.message("Hi"))
    assert ("thinking" in body) == adaptive


def test_effort_and_speed_are_sent_where_they_are_not_the_default() -> None:
    agent = logs.agent()
    agent.model.effort.CopyFrom(Effort(type=EFFORT_LEVEL_HIGH))
    assert "output_config" not in request(agent, logs.message("Hi"))
    agent.model.effort.type = EFFORT_LEVEL_MAX
    agent.model.speed = MODEL_SPEED_FAST
    agent.model.inference_geo = "us"
    body = request(agent, logs.message("Hi"))
    assert body["output_config"] == {"effort": "max"}
    assert (body["speed"], body["inference_geo"]) == ("fast", "us")
    state = fold(Session(agent=agent), [])
    assert HARNESS.request(state).betas == ("fast-mode-2026-02-01",)


def test_every_request_repeats_the_bytes_of_the_one_before_but_for_breakpoints() -> None:
    world = logs.World(5)
    bodies = [
        HARNESS.request(world.state).body
        for _ in range(400)
        if isinstance(world.step(), logs.CallModel)
    ]
    assert len(bodies) > 20
    mark = b',"cache_control":{"type":"ephemeral"}'
    kept = 0
    for before, after in itertools.pairwise(bodies):
        plain = before.replace(mark, b"").removesuffix(b"]}]}")
        kept += after.replace(mark, b"").startswith(plain)
    # A refusal takes its turn out of the context, all else only adds.
    assert kept > len(bodies) * 0.7


def test_breakpoint_of_the_request_before_is_set_again() -> None:
    transcript = Transcript()
    for number in range(3):
        transcript.add("user", content.text_block(f"question {number}"))
        transcript.add("assistant", content.text_block(f"answer {number}"))
    transcript.add("user", content.text_block("last"))
    messages = json.loads(transcript.render(b"[", b"]", breakpoints=2))
    marked = [
        index for index, message in enumerate(messages) if "cache_control" in message["content"][-1]
    ]
    assert marked == [4, 6]
    plain = json.loads(transcript.render(b"[", b"]"))
    assert "cache_control" not in json.dumps(plain)
    assert len(plain) == 7


def test_dropped_turn_leaves_the_transcript_as_it_was() -> None:
    transcript = Transcript()
    transcript.add("user", content.text_block("one"))
    transcript.add("assistant", content.text_block("two"))
    before = transcript.dump()
    transcript.begin_turn()
    transcript.add("assistant", content.text_block("more"))
    transcript.add("user", content.text_block("three"))
    transcript.add("assistant", content.text_block("four"))
    transcript.drop_turn()
    assert transcript.dump()[:4] == before[:4]


def test_every_kind_of_content_reaches_the_model() -> None:
    data = Base64Source(data="aGk=", media_type="image/png")
    blocks = [
        events.text("süß \u0000"),
        ContentBlock(image=ImageBlock(source=ImageSource(base64=data))),
        ContentBlock(image=ImageBlock(source=ImageSource(url=UrlSource(url="https://x/y")))),
        ContentBlock(
            document=DocumentBlock(
                source=DocumentSource(text=PlainTextSource(data="t", media_type="text/plain")),
                title="T",
                context="C",
            )
        ),
        ContentBlock(
            search_result=SearchResultBlock(
                source="s",
                title="t",
                content=[SearchResultContent(text="c")],
                citations=Citations(enabled=True),
            )
        ),
        ContentBlock(redacted=RedactedBlock()),
        events.text("  "),
    ]
    sent = request(logs.agent(), Event(user_message=UserMessage(content=blocks)))
    text, image, linked, document, found, redacted = sent["messages"][0]["content"]
    assert text["text"] == "süß \u0000"
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert linked["source"] == {"type": "url", "url": "https://x/y"}
    assert (document["title"], document["context"]) == ("T", "C")
    assert found["citations"] == {"enabled": True}
    assert "withheld" in redacted["text"]


def test_message_of_blanks_is_sent_as_something() -> None:
    sent = request(logs.agent(), logs.message(" \n"))
    assert sent["messages"][0]["content"][0]["text"].strip()


def test_toolset_with_everything_off_offers_nothing() -> None:
    toolset = AgentToolset()
    toolset.default_config.enabled = False
    assert "tools" not in request(logs.agent(Tool(agent_toolset=toolset)), logs.message("Hi"))


@pytest.mark.parametrize("kind", ["image", "document"])
def test_a_file_that_is_empty_is_told_of_and_not_sent(kind: str) -> None:
    block = ContentBlock()
    getattr(block, kind).source.base64.media_type = "image/png"
    shown = json.loads(content.block(block) or b"")
    assert shown["type"] == "text"
    assert "empty" in shown["text"]
