"""A model that says what a test has written for it, through the brain's model port."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Raw = dict[str, Any]


@dataclass
class Reply:
    """One response: raw events with an optional failure at their end.

    With `hold`, the events behind that index wait until `release` is set.
    """

    events: list[Raw]
    error: Exception | None = None
    hold: int | None = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)


def text(value: str, *, pieces: int = 1) -> list[Raw]:
    step = max(1, -(-len(value) // pieces))
    parts = [value[at : at + step] for at in range(0, len(value), step)] or [""]
    return [
        {"content_block": {"type": "text", "text": ""}},
        *({"delta": {"type": "text_delta", "text": part}} for part in parts),
    ]


def tool(name: str, arguments: Mapping[str, Any] | str, call_id: str = "toolu_1") -> list[Raw]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    half = len(written) // 2
    return [
        {"content_block": {"type": "tool_use", "id": call_id, "name": name, "input": {}}},
        {"delta": {"type": "input_json_delta", "partial_json": written[:half]}},
        {"delta": {"type": "input_json_delta", "partial_json": written[half:]}},
    ]


def thinking(value: str, signature: str = "sig") -> list[Raw]:
    return [
        {"content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"delta": {"type": "thinking_delta", "thinking": value}},
        {"delta": {"type": "signature_delta", "signature": signature}},
    ]


def block(content_block: Raw) -> list[Raw]:
    return [{"content_block": content_block}]


def response(
    *blocks: list[Raw],
    stop_reason: str | None = None,
    stop_details: Raw | None = None,
    usage: Raw | None = None,
) -> list[Raw]:
    """The raw events of a whole response."""
    counted = {"input_tokens": 10, "output_tokens": 1} | (usage or {})
    message = {"id": "msg_1", "model": "claude-test", "role": "assistant", "usage": counted}
    events: list[Raw] = [{"type": "message_start", "message": message}]
    uses_tool = False
    for index, parts in enumerate(blocks):
        for part in parts:
            kind = "content_block_start" if "content_block" in part else "content_block_delta"
            events.append({"type": kind, "index": index, **part})
            uses_tool = uses_tool or part.get("content_block", {}).get("type") == "tool_use"
        events.append({"type": "content_block_stop", "index": index})
    delta = {
        "stop_reason": stop_reason or ("tool_use" if uses_tool else "end_turn"),
        "stop_details": stop_details,
    }
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
    events.append({"type": "message_stop"})
    return events


class ScriptedModel:
    """Implements `ModelClient`: replies are used in order, request bodies are kept."""

    provider = "anthropic"

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.bodies: list[bytes] = []
        self.betas: list[tuple[str, ...]] = []
        self.cut_off = 0
        # Called with each request's body, to add the reply that it gets.
        self.before_each: Callable[[bytes], None] | None = None

    def say(self, *blocks: list[Raw], **options: Any) -> Reply:
        """Adds a whole response."""
        return self.add(Reply(response(*blocks, **options)))

    def fail(self, error: Exception, *before: Raw) -> Reply:
        """Adds a failure, after some events."""
        return self.add(Reply(list(before), error))

    def add(self, reply: Reply) -> Reply:
        self.replies.append(reply)
        return reply

    @property
    def requests(self) -> list[Raw]:
        return [json.loads(body) for body in self.bodies]

    @asynccontextmanager
    async def stream(
        self, body: bytes, *, betas: Sequence[str] = ()
    ) -> AsyncIterator[AsyncIterator[Mapping[str, Any]]]:
        self.bodies.append(bytes(body))
        self.betas.append(tuple(betas))
        if self.before_each is not None:
            self.before_each(self.bodies[-1])
        reply = self.replies.popleft() if self.replies else Reply(response(text("(no script)")))
        try:
            yield self._events(reply)
        except asyncio.CancelledError:
            self.cut_off += 1
            raise

    async def _events(self, reply: Reply) -> AsyncIterator[Mapping[str, Any]]:
        for index, event in enumerate(reply.events):
            if index == reply.hold:
                reply.reached.set()
                await reply.release.wait()
            yield event
        if reply.hold is not None and reply.hold >= len(reply.events):
            reply.reached.set()
            await reply.release.wait()
        if reply.error is not None:
            raise reply.error


def joined(parts: Iterable[list[Raw]]) -> list[Raw]:
    return [event for part in parts for event in part]
