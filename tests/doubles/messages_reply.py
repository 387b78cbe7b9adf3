"""What the Messages-API double can answer: messages, refusals, errors, raw bytes, cuts and stalls.

Written apart from the product's own encoder, so that a mistake in one is not hidden by the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson

NewId = Callable[[str], str]
"""Makes an id with the given prefix, unique within one double."""


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 10
    output_tokens: int = 5
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def as_json(self) -> dict[str, int]:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
        }


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class Thinking:
    thinking: str
    signature: str = "c2lnbmF0dXJl"
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of a tool. `input` as a string is streamed as it stands, valid JSON or not."""

    name: str
    input: Mapping[str, Any] | str
    id: str | None = None
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    """A block of any kind, sent whole in `content_block_start`: redacted or unknown ones."""

    content: Mapping[str, Any]


AnyBlock = Text | Thinking | ToolUse | Block


class Gate:
    """Holds a reply until the test releases it; usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached = threading.Event()
        self._released = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def release(self) -> None:
        """Let every reply go on that waits here, now or later."""
        with self._lock:
            self._released = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def wait_reached(self, deadline: float = 30.0) -> None:
        """Block until a reply waits here; `deadline` in seconds."""
        if not self._reached.wait(deadline):
            msg = f"no reply reached the gate within {deadline} s"
            raise TimeoutError(msg)

    async def reached(self, deadline: float = 30.0) -> None:
        """Wait until a reply waits here; `deadline` in seconds."""
        await asyncio.to_thread(self.wait_reached, deadline)

    async def passed(self) -> None:
        """The double's side: wait until released."""
        event = asyncio.Event()
        with self._lock:
            self._reached.set()
            if self._released:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait inside a reply's body: seconds, or a gate.

    `after` is a number of body bytes, or the name of a stream event: after its first occurrence.
    """

    wait: Gate | float
    after: int | str = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer. `body` renders it for a request that did or did not ask for a stream."""

    body: Callable[[bool, NewId], bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()
    cut_after: int | str | None = None
    # Renders the same answer with another usage.
    with_usage: Callable[[Usage], Callable[[bool, NewId], bytes]] | None = None

    def counted(self, used: Usage) -> Reply:
        """The same answer with this usage, if it tells of any."""
        return replace(self, body=self.with_usage(used)) if self.with_usage else self

    def cut(self, after: int | str) -> Reply:
        """Close the connection after so many body bytes, or after the first event of that name."""
        return replace(self, cut_after=after)

    def stall(self, gate: Gate, after: int | str = 0) -> Reply:
        """Wait for `gate` after so many body bytes, or after the first event of that name."""
        return replace(self, pauses=(*self.pauses, Pause(gate, after)))

    def delayed(self, seconds: float, after: int | str = "message_start") -> Reply:
        """Wait some seconds; by default before the first token."""
        return replace(self, pauses=(*self.pauses, Pause(seconds, after)))


def offset_of(body: bytes, after: int | str) -> int:
    """The byte offset that `after` means in `body`."""
    if isinstance(after, int):
        return min(after, len(body))
    start = body.find(b"event: " + after.encode() + b"\n")
    if start < 0:
        msg = f"the reply has no {after} event"
        raise ValueError(msg)
    return body.index(b"\n\n", start) + 2


def message(
    *blocks: AnyBlock,
    stop_reason: str | None = None,
    stop_details: Mapping[str, Any] | None = None,
    usage: Usage | None = None,
    model: str = "double-1",
) -> Reply:
    """A whole message; the stop reason follows from the blocks unless given."""
    used = usage or Usage()
    calls = any(isinstance(block, ToolUse) for block in blocks)
    reason = stop_reason or ("tool_use" if calls else "end_turn")

    def body(used: Usage, streaming: bool, new_id: NewId) -> bytes:
        contents = [_content(block, new_id) for block in blocks]
        head: dict[str, Any] = {
            "id": new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": contents,
            "stop_reason": reason,
            "stop_sequence": None,
            "stop_details": stop_details,
            "usage": used.as_json(),
        }
        if not streaming:
            return orjson.dumps(head)
        return b"".join(_stream(head, blocks, contents))

    return Reply(partial(body, used), with_usage=lambda used: partial(body, used))


def text(text_: str, *, pieces: int = 1, usage: Usage | None = None) -> Reply:
    """A text answer that ends the turn, streamed in so many deltas."""
    return message(Text(text_, pieces), usage=usage)


def tools(*calls: ToolUse, say: str | None = None, usage: Usage | None = None) -> Reply:
    """One or more tool calls in one answer, with a text before them if wanted."""
    lead = (Text(say),) if say is not None else ()
    return message(*lead, *calls, usage=usage)


def thinking(thought: str, then: str, *, signature: str = "c2lnbmF0dXJl") -> Reply:
    """A signed thinking block, then a text."""
    return message(Thinking(thought, signature), Text(then))


def refusal(category: str | None = None, explanation: str | None = None) -> Reply:
    """A refusal without content, as the API reports it."""
    details = {"type": "refusal", "category": category, "explanation": explanation}
    return message(stop_reason="refusal", stop_details=details)


def max_tokens(text_: str, *, usage: Usage | None = None) -> Reply:
    """A text that stops at the token limit."""
    return message(Text(text_), stop_reason="max_tokens", usage=usage)


def raw(body: bytes, *, content_type: str = "text/event-stream", status: int = 200) -> Reply:
    """Any bytes as the answer's body."""
    return Reply(lambda _streaming, _new_id: body, status, {"content-type": content_type})


_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def error(
    status: int,
    message_: str = "scripted error",
    *,
    type_: str | None = None,
    retry_after: float | str | None = None,
    retry_after_ms: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error status in the API's envelope; `retry_after` in seconds or as an HTTP date."""
    sent = {"content-type": "application/json", **(headers or {})}
    if retry_after is not None:
        sent["retry-after"] = str(retry_after)
    if retry_after_ms is not None:
        sent["retry-after-ms"] = str(retry_after_ms)
    body = _error_body(type_ or _ERROR_TYPES.get(status, "api_error"), message_)
    return Reply(lambda _streaming, _new_id: body, status, sent)


def stream_error(type_: str, message_: str = "scripted error", *, after: str = "begun") -> Reply:
    """A stream that begins well (message start, half a text block) and ends in `event: error`."""

    def body(_streaming: bool, new_id: NewId) -> bytes:
        begun = text(after).body(True, new_id)
        upto = offset_of(begun, "content_block_delta")
        return begun[:upto] + b"event: error\ndata: " + _error_body(type_, message_) + b"\n\n"

    return Reply(body)


def _error_body(type_: str, message_: str) -> bytes:
    return orjson.dumps(
        {"type": "error", "error": {"type": type_, "message": message_}, "request_id": "req_double"}
    )


def _content(block: AnyBlock, new_id: NewId) -> dict[str, Any]:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking():
            return {
                "type": "thinking",
                "thinking": block.thinking,
                "signature": block.signature,
            }
        case ToolUse():
            given: Any = block.input
            if isinstance(given, str):
                try:
                    given = orjson.loads(given)
                except orjson.JSONDecodeError:
                    given = {}
            return {
                "type": "tool_use",
                "id": block.id or new_id("toolu"),
                "name": block.name,
                "input": given,
            }
        case Block():
            return dict(block.content)


def _stream(
    head: Mapping[str, Any],
    blocks: Sequence[AnyBlock],
    contents: Sequence[Mapping[str, Any]],
) -> list[bytes]:
    usage = head["usage"]
    end = {key: head[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    opening = {
        **head,
        **dict.fromkeys(end),
        "content": [],
        "usage": {**usage, "output_tokens": 1},
    }
    frames = [_frame({"type": "message_start", "message": opening})]
    for index, (block, content) in enumerate(zip(blocks, contents, strict=True)):
        empty, deltas = _deltas(block, content)
        frames.append(
            _frame({"type": "content_block_start", "index": index, "content_block": empty})
        )
        frames.extend(
            _frame({"type": "content_block_delta", "index": index, "delta": delta})
            for delta in deltas
        )
        frames.append(_frame({"type": "content_block_stop", "index": index}))
    frames.append(_frame({"type": "message_delta", "delta": end, "usage": usage}))
    frames.append(_frame({"type": "message_stop"}))
    return frames


def _deltas(
    block: AnyBlock, content: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[dict[str, str]]]:
    match block:
        case Text():
            deltas = [{"type": "text_delta", "text": p} for p in _cut(block.text, block.pieces)]
            return {**content, "text": ""}, deltas
        case Thinking():
            deltas = [
                {"type": "thinking_delta", "thinking": p}
                for p in _cut(block.thinking, block.pieces)
            ]
            deltas.append({"type": "signature_delta", "signature": block.signature})
            return {**content, "thinking": "", "signature": ""}, deltas
        case ToolUse():
            given = block.input
            encoded = given if isinstance(given, str) else orjson.dumps(given).decode()
            deltas = [
                {"type": "input_json_delta", "partial_json": p} for p in _cut(encoded, block.pieces)
            ]
            return {**content, "input": {}}, deltas
        case Block():
            return content, []


def _cut(whole: str, pieces: int) -> list[str]:
    size = max(1, -(-len(whole) // pieces))
    return [whole[at : at + size] for at in range(0, len(whole), size)] or [""]


def _frame(event: Mapping[str, Any]) -> bytes:
    name: str = event["type"]
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(event))
