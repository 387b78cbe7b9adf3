"""Images, documents and search results in and out, byte for byte, by the official SDK."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from anthropic import Anthropic, BadRequestError, NotFoundError

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import TOOLSET, history, new_session, run_turn, stamped
from tests.e2e.stack import Stack

DESK: dict[str, Any] = {
    "type": "custom",
    "name": "ask_desk",
    "description": "Asks the desk.",
    "input_schema": {"type": "object", "properties": {}},
}


def _chunk(kind: bytes, data: bytes) -> bytes:
    whole = kind + data
    return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00"))
    + _chunk(b"IEND", b"")
)
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def source(data: bytes, media_type: str) -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": encoded(data)}


IMAGE = {"type": "image", "source": source(PNG, "image/png")}
IMAGE_URL = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
DOCUMENT = {
    "type": "document",
    "source": source(PDF, "application/pdf"),
    "title": "Terms \u201cdraft\u201d",
    "context": "From the supplier.",
}
PLAIN = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": 'line "one"\nline two\u2028'},
}
DOCUMENT_URL = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
FOUND = {
    "type": "search_result",
    "source": "https://example.com/faq",
    "title": "FAQ",
    "content": [{"type": "text", "text": "We open at nine."}],
    "citations": {"enabled": True},
}
SAID = {"type": "text", "text": "Look at these."}
SHOWN = [SAID, IMAGE, IMAGE_URL, DOCUMENT, PLAIN, DOCUMENT_URL]


def sent(stack: Stack) -> list[Any]:
    """The blocks of the newest message that the model was sent, without cache breakpoints."""
    blocks = stack.model.requests[-1].body["messages"][-1]["content"]
    return [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]


def as_given(block: Any) -> Any:
    """A block of the history without the fields that nobody set."""
    return block.to_dict() if not isinstance(block, dict) else block


def test_every_kind_of_block_in_a_message_reaches_the_model_and_the_history(stack: Stack) -> None:
    stack.model.script(text("seen"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        message: Any = {"type": "user.message", "content": SHOWN}
        client.beta.sessions.events.send(session.id, events=[message])
        log = stack.until_idle(client, session.id)
    assert sent(stack) == SHOWN
    told = next(event for event in log if event.type == "user.message")
    kept = [as_given(block) for block in told.content]
    assert [{k: v for k, v in block.items() if v is not None} for block in kept] == SHOWN


def test_every_kind_of_block_in_a_custom_tools_result_reaches_the_model(stack: Stack) -> None:
    stack.model.script(tools(ToolUse("ask_desk", {})), text("seen"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[DESK])
        [call] = run_turn(client, session.id, "ask")[-1].stop_reason.event_ids
        answer: Any = {
            "type": "user.custom_tool_result",
            "custom_tool_use_id": call,
            "content": [*SHOWN, FOUND],
        }
        client.beta.sessions.events.send(session.id, events=[answer])
        log = stack.until_idle(client, session.id)
    [result] = sent(stack)
    assert result["type"] == "tool_result"
    assert result["content"] == [*SHOWN, FOUND]
    assert "is_error" not in result
    told = next(event for event in log if event.type == "user.custom_tool_result")
    assert [block.type for block in told.content] == [block["type"] for block in result["content"]]


def test_failed_result_of_a_custom_tool_says_so_to_the_model(stack: Stack) -> None:
    stack.model.script(tools(ToolUse("ask_desk", {})), text("a pity"))
    with stack.client() as client:
        session = new_session(client, tools=[DESK])
        [call] = run_turn(client, session.id, "ask")[-1].stop_reason.event_ids
        answer: Any = {
            "type": "user.custom_tool_result",
            "custom_tool_use_id": call,
            "is_error": True,
        }
        client.beta.sessions.events.send(session.id, events=[answer])
        stack.until_idle(client, session.id)
    [result] = sent(stack)
    assert result["is_error"] is True
    assert result["content"] == [{"type": "text", "text": "(no output)"}]


@pytest.mark.parametrize(
    ("name", "data", "block", "media_type"),
    [("dot.png", PNG, "image", "image/png"), ("terms.pdf", PDF, "document", "application/pdf")],
)
def test_file_that_the_agent_reads_is_shown_to_the_model_and_the_client(
    stack: Stack, name: str, data: bytes, block: str, media_type: str
) -> None:
    stack.model.script(
        tools(ToolUse("bash", {"command": f"echo {encoded(data)} | base64 -d > {name}"})),
        tools(ToolUse("read", {"file_path": f"/workspace/{name}"})),
        text("seen"),
    )
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        seen = stamped(run_turn(client, session.id, "look"))
    [result] = sent(stack)
    shown = {"type": block, "source": source(data, media_type)}
    assert [{k: part[k] for k in shown} for part in result["content"]] == [shown]
    told = [event for event in seen if event.type == "agent.tool_result"][-1]
    assert told.content[0].source.data == encoded(data)
    assert not told.is_error


@pytest.mark.parametrize("kind", ["image", "document"])
def test_a_file_that_nobody_has_uploaded_is_not_found_by_its_place(stack: Stack, kind: str) -> None:
    with stack.client() as client:
        session = new_session(client)
        content = [SAID, {"type": kind, "source": {"type": "file", "file_id": "file_1"}}]
        with pytest.raises(NotFoundError, match=r"events.0.content.1.source.file_id: file file_1"):
            _send(client, session.id, {"type": "user.message", "content": content})
        assert history(client, session.id) == []


def test_search_results_are_for_tools_only(stack: Stack) -> None:
    with stack.client() as client:
        session = new_session(client, tools=[TOOLSET])
        with pytest.raises(BadRequestError, match=r"events.0.content.0.type: search_result"):
            _send(client, session.id, {"type": "user.message", "content": [FOUND]})


def _send(client: Anthropic, session_id: str, *events: Any) -> None:
    client.beta.sessions.events.send(session_id, events=list(events))
