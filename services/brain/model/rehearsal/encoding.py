"""An answer in the shapes of the Messages API: one message, or a stream of server-sent events."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from services.brain.model.rehearsal.script import Answer

_CHARACTERS_PER_TOKEN = 4
_DELTA = re.compile(r"\s*(?:\S{1,40}\s*){1,4}")


def tokens(text: str | bytes) -> int:
    """The rehearsal model's idea of a token: four characters or bytes, at least one."""
    return max(1, -(-len(text) // _CHARACTERS_PER_TOKEN))


def message(answer: Answer, body: Mapping[str, Any]) -> dict[str, Any]:
    """The API's message for `answer` to the request `body`.

    Ids are digests of the conversation: the same request gets the same ids, and a later one of
    the session gets others. An answer over `max_tokens` ends there, without its calls.
    """
    asked = orjson.dumps([body.get("system"), body["messages"], body.get("tools")])
    digest = hashlib.sha256(asked).hexdigest()
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}]
    content.extend(
        {
            "type": "tool_use",
            "id": f"toolu_rehearsal_{digest[:20]}{at:02d}",
            "name": call.name,
            "input": dict(call.input),
        }
        for at, call in enumerate(answer.calls)
    )
    reason = "tool_use" if answer.calls else "end_turn"
    spent = sum(tokens(_output(block)) for block in content)
    if spent > body["max_tokens"]:
        spent = body["max_tokens"]
        content = [{"type": "text", "text": answer.text[: spent * _CHARACTERS_PER_TOKEN]}]
        reason = "max_tokens"
    return {
        "id": f"msg_rehearsal_{digest[:20]}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "stop_details": None,
        "usage": {
            "input_tokens": tokens(asked),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": spent,
        },
    }


def stream(whole: Mapping[str, Any]) -> Iterator[bytes]:
    """The frames of the stream that adds up to the message `whole`."""
    usage = whole["usage"]
    begun = {
        **whole,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield _frame({"type": "message_start", "message": begun})
    for index, block in enumerate(whole["content"]):
        at = {"index": index}
        yield _frame({"type": "content_block_start", **at, "content_block": _emptied(block)})
        for delta in _deltas(block):
            yield _frame({"type": "content_block_delta", **at, "delta": delta})
        yield _frame({"type": "content_block_stop", **at})
    end = {key: whole[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    yield _frame({"type": "message_delta", "delta": end, "usage": usage})
    yield _frame({"type": "message_stop"})


def error(type_: str, text: str) -> dict[str, Any]:
    """The API's error envelope."""
    return {"type": "error", "error": {"type": type_, "message": text}}


def _output(block: Mapping[str, Any]) -> str | bytes:
    if block["type"] == "text":
        text: str = block["text"]
        return text
    return orjson.dumps([block["name"], block["input"]])


def _emptied(block: Mapping[str, Any]) -> dict[str, Any]:
    return {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}


def _deltas(block: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    if block["type"] == "text":
        for piece in _DELTA.findall(block["text"]) or [block["text"]]:
            yield {"type": "text_delta", "text": piece}
        return
    encoded = orjson.dumps(block["input"]).decode()
    yield {"type": "input_json_delta", "partial_json": ""}
    for at in range(0, len(encoded), 1_000):
        yield {"type": "input_json_delta", "partial_json": encoded[at : at + 1_000]}


def _frame(event: Mapping[str, Any]) -> bytes:
    name: str = event["type"]
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(event))
