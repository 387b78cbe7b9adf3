"""The model's stream put together into events, with the previews that run ahead of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from drover.event.v1.agent_event_pb2 import (
    EVALUATED_PERMISSION_ALLOW,
    EVALUATED_PERMISSION_ASK,
    EVALUATED_PERMISSION_DENY,
    AgentCustomToolUse,
    AgentMcpToolUse,
    AgentMessage,
    AgentThinking,
    AgentToolUse,
)
from drover.event.v1.event_pb2 import Event
from drover.event.v1.span_event_pb2 import ModelUsage, SpanModelRequestEnd
from services.brain.domain import events, policy
from services.brain.domain.context import OVERFLOW
from services.brain.domain.policy import Permission

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.brain.domain.events import EventFactory
    from services.brain.domain.policy import Permissions

_CUT_OFF: Final = ("max_tokens", OVERFLOW)
"""Stop reasons with which the last block may be a part of what the model meant to write."""

_EVALUATED: Final = {
    Permission.ALLOW: EVALUATED_PERMISSION_ALLOW,
    Permission.ASK: EVALUATED_PERMISSION_ASK,
    Permission.AUTO: EVALUATED_PERMISSION_ASK,
}


@dataclass(frozen=True, slots=True)
class Started:
    """The event `id` of the wire type `type` begins."""

    type: str
    id: str


@dataclass(frozen=True, slots=True)
class Grown:
    """The event `id` has more text in its block `index`."""

    id: str
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolBegun:
    """The model writes a call of the tool `name`."""

    name: str


Signal = Started | Grown | ToolBegun


@dataclass(slots=True)
class _Text:
    event_id: str
    index: int
    parts: list[str] = field(default_factory=list)
    # Half of a surrogate pair, kept until the other half comes.
    half: str = ""


@dataclass(slots=True)
class _Thinking:
    event_id: str
    parts: list[str]
    signature: str = ""
    redacted: str = ""


@dataclass(slots=True)
class _ToolUse:
    event_id: str
    model_call_id: str
    name: str
    given: Any
    parts: list[str] = field(default_factory=list)


_Block = _Text | _Thinking | _ToolUse


class ResponseAssembler:
    """Takes the raw events of one response. Blocks of kinds it does not know are left out."""

    def __init__(self, factory: EventFactory) -> None:
        self._factory = factory
        self._blocks: dict[int, _Block] = {}
        self._order: list[_Block] = []
        self._delta: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self.message_id = ""
        self.model = ""
        self.ignored: list[str] = []

    def feed(self, raw: Mapping[str, Any]) -> Signal | None:
        """Takes one raw event; answers what there is to show of it, if anything."""
        match raw.get("type"):
            case "content_block_delta":
                return self._on_delta(raw)
            case "content_block_start":
                return self._on_block(raw)
            case "message_start":
                message = raw.get("message") or {}
                self.message_id = str(message.get("id") or "")
                self.model = str(message.get("model") or "")
                self._usage.update(message.get("usage") or {})
            case "message_delta":
                self._delta.update(raw.get("delta") or {})
                self._usage.update(
                    (key, value)
                    for key, value in (raw.get("usage") or {}).items()
                    if value is not None
                )
            case _:
                pass
        return None

    @property
    def stop_reason(self) -> str:
        """Why the model stopped, in the words of the Messages API; empty while it has not."""
        return str(self._delta.get("stop_reason") or "")

    def usage(self) -> ModelUsage:
        """The tokens told of so far."""
        creation = self._usage.get("cache_creation") or {}
        usage = ModelUsage(
            input_tokens=_count(self._usage, "input_tokens"),
            output_tokens=_count(self._usage, "output_tokens"),
            cache_read_input_tokens=_count(self._usage, "cache_read_input_tokens"),
            cache_creation_input_tokens=_count(self._usage, "cache_creation_input_tokens"),
            cache_creation_1h_input_tokens=_count(creation, "ephemeral_1h_input_tokens"),
        )
        if speed := self._usage.get("speed"):
            usage.speed = str(speed)
        return usage

    def finish(self, request: str, permissions: Permissions) -> list[Event]:
        """The events of the whole response to the request `request`, its end included."""
        refused = self.stop_reason == "refusal"
        finished: list[Event] = []
        message: AgentMessage | None = None
        for block in self._order:
            if isinstance(block, _Text):
                text = _whole("".join(block.parts) + block.half)
                if not text:
                    continue
                if message is None or finished[-1].id != block.event_id:
                    finished.append(Event(id=block.event_id, agent_message=AgentMessage()))
                    message = finished[-1].agent_message
                message.content.append(events.text(text))
            elif isinstance(block, _Thinking):
                finished.append(_thinking(block))
            elif not refused:
                # What a refusal cut off must not run, and half a call not at all.
                cut = block is self._order[-1] and self.stop_reason in _CUT_OFF
                finished.append(_tool_use(block, permissions, cut=cut))
        end = SpanModelRequestEnd(
            model_request_start_id=request,
            model_usage=self.usage(),
            is_error=False,
            stop_reason=self.stop_reason,
            message_id=self.message_id,
        )
        if details := self._delta.get("stop_details"):
            end.stop_details = _whole(json.dumps(details, ensure_ascii=False))
        finished.append(Event(id=self._factory.new_id(), span_model_request_end=end))
        return finished

    def _on_block(self, raw: Mapping[str, Any]) -> Signal | None:
        given = raw.get("content_block") or {}
        block: _Block
        signal: Signal | None = None
        match given.get("type"):
            case "text":
                block = self._text_block()
                if text := given.get("text"):
                    signal = _grow(block, str(text))
            case "thinking":
                block = _Thinking(self._factory.new_id(), [str(given.get("thinking") or "")])
                block.signature = str(given.get("signature") or "")
                signal = Started("agent.thinking", block.event_id)
            case "redacted_thinking":
                block = _Thinking(self._factory.new_id(), [], redacted=str(given.get("data") or ""))
                signal = Started("agent.thinking", block.event_id)
            case "tool_use":
                name = _whole(str(given.get("name") or ""))
                block = _ToolUse(
                    self._factory.new_id(), str(given.get("id") or ""), name, given.get("input")
                )
                signal = ToolBegun(name)
            case other:
                self.ignored.append(str(other))
                return None
        self._blocks[raw.get("index", len(self._blocks))] = block
        self._order.append(block)
        return signal

    def _text_block(self) -> _Text:
        last = self._order[-1] if self._order else None
        if isinstance(last, _Text):
            # Text blocks in a row are one message; one that stayed empty leaves no block in it.
            written = bool(last.parts)
            return _Text(last.event_id, last.index + written)
        return _Text(self._factory.new_id(), 0)

    def _on_delta(self, raw: Mapping[str, Any]) -> Signal | None:
        block = self._blocks.get(raw.get("index", -1))
        delta = raw.get("delta") or {}
        match delta.get("type"), block:
            case "text_delta", _Text():
                return _grow(block, str(delta.get("text") or ""))
            case "input_json_delta", _ToolUse():
                block.parts.append(str(delta.get("partial_json") or ""))
            case "thinking_delta", _Thinking():
                block.parts.append(str(delta.get("thinking") or ""))
            case "signature_delta", _Thinking():
                block.signature += str(delta.get("signature") or "")
            case _:
                pass
        return None


def _grow(block: _Text, more: str) -> Grown | None:
    text = block.half + more
    block.half = ""
    if text and "\ud800" <= text[-1] <= "\udbff":
        text, block.half = text[:-1], text[-1]
    if not text:
        return None
    text = _whole(text)
    block.parts.append(text)
    return Grown(block.event_id, block.index, text)


def _whole(text: str) -> str:
    """`text` as UTF-8 can carry it: pairs of surrogates joined, single ones replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _thinking(block: _Thinking) -> Event:
    return Event(
        id=block.event_id,
        agent_thinking=AgentThinking(
            thinking=_whole("".join(block.parts)),
            signature=block.signature,
            redacted_data=block.redacted,
        ),
    )


def _tool_use(block: _ToolUse, permissions: Permissions, *, cut: bool = False) -> Event:
    arguments = "".join(block.parts)
    if not arguments and block.given:
        arguments = json.dumps(block.given, ensure_ascii=False)
    arguments = _whole(arguments)
    sound = _is_object(arguments) if arguments.strip() else not cut
    permission = permissions.of(block.name)
    if permission is Permission.CUSTOM and sound:
        custom = AgentCustomToolUse(
            name=block.name,
            input=arguments if arguments.strip() else "{}",
            model_call_id=block.model_call_id,
        )
        return Event(id=block.event_id, agent_custom_tool_use=custom)
    remote = permissions.remote.get(block.name)
    use: AgentToolUse | AgentMcpToolUse
    if remote is not None:
        use = AgentMcpToolUse(
            mcp_server_name=remote.server, name=remote.tool, offered_name=block.name
        )
    else:
        use = AgentToolUse(name=block.name)
    use.input = arguments if sound and arguments.strip() else "{}"
    use.model_call_id = block.model_call_id
    use.evaluated_permission = _EVALUATED.get(permission, EVALUATED_PERMISSION_DENY)
    if (evaluation := policy.evaluation(permission)) is not None:
        use.evaluation.CopyFrom(evaluation)
    if not sound:
        use.malformed_input = arguments
        use.evaluated_permission = EVALUATED_PERMISSION_DENY
        use.ClearField("evaluation")
    if isinstance(use, AgentMcpToolUse):
        return Event(id=block.event_id, agent_mcp_tool_use=use)
    return Event(id=block.event_id, agent_tool_use=use)


def _is_object(text: str) -> bool:
    try:
        value = json.loads(text, parse_constant=_not_json)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # refuses single surrogates
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _not_json(constant: str) -> None:
    raise ValueError(constant)


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) and value > 0 else 0
