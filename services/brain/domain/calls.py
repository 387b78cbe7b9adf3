"""Tool calls of the model's last response, from the call to its one result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from drover.event.v1.agent_event_pb2 import EVALUATED_PERMISSION_ALLOW, EVALUATED_PERMISSION_ASK
from services.brain.domain import content
from services.brain.domain.context import HISTORY_TOOL
from services.brain.domain.policy import SANDBOX_TOOLS, WEB_TOOLS
from services.brain.domain.transcript import Result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drover.agent.v1.tool_pb2 import WebSettings
    from drover.event.v1.agent_event_pb2 import (
        AgentCustomToolUse,
        AgentMcpToolResult,
        AgentMcpToolUse,
        AgentToolResult,
        AgentToolUse,
    )
    from drover.event.v1.content_pb2 import ContentBlock
    from drover.event.v1.event_pb2 import Event
    from drover.event.v1.user_event_pb2 import UserCustomToolResult, UserToolResult

    Answer = AgentToolResult | AgentMcpToolResult | UserToolResult | UserCustomToolResult

_RESULTS: Final = {
    "agent_tool_result": "tool_use_id",
    "agent_mcp_tool_result": "mcp_tool_use_id",
    "user_tool_result": "tool_use_id",
    "user_custom_tool_result": "custom_tool_use_id",
}

INTERRUPTED: Final = "Tool execution was interrupted before completion. Please retry."
"""The result of a call that an interrupt cut off (EVENTS §9)."""


class Answerer(Enum):
    """Who has to answer a call next."""

    HANDS = "hands"
    # The brain, from the session's own log.
    LOG = "log"
    CLIENT = "client"
    # The worker of the session's environment, elsewhere.
    WORKER = "worker"
    # The harness itself: the call was refused.
    HARNESS = "harness"


@dataclass(slots=True)
class Call:
    """One call; `result` is its `tool_result` block once it has one."""

    id: str
    name: str
    arguments: str
    model_call_id: str
    answerer: Answerer
    refusal: str = ""
    asked: bool = False
    # A worker runs it, not a hand; one of the agent's own tools, a worker or another client.
    hosted: bool = False
    # The MCP server whose tool it is, and the server's own name of that.
    server: str = ""
    tool: str = ""
    # What a call of a web tool goes by, and why it may not be made, whoever allows it.
    web: WebSettings | None = None
    barred: str = ""
    result: Result | None = None

    @property
    def open(self) -> bool:
        """It has no result yet."""
        return self.result is None

    @property
    def with_worker(self) -> bool:
        """A worker is at it, or will be once a person has allowed it."""
        return self.hosted and self.answerer is not Answerer.HARNESS

    def confirm(self, *, allowed: bool, deny_message: str) -> None:
        """Takes a person's answer; the first one counts."""
        if not self.asked:
            return
        self.asked = False
        if allowed and self.barred:
            self.answerer, self.refusal = Answerer.HARNESS, self.barred
        elif allowed:
            self.answerer = Answerer.WORKER if self.hosted else Answerer.HANDS
        else:
            self.answerer = Answerer.HARNESS
            self.refusal = f"{_denied(self.tool or self.name)} {deny_message}".rstrip()

    def browse(self, settings: WebSettings, barred: str) -> None:
        """Is a call of a web tool, which goes by `settings`; `barred` says why it may not be."""
        self.web, self.barred = settings, barred
        if barred and self.answerer is Answerer.HANDS:
            self.answerer, self.refusal = Answerer.HARNESS, barred

    def resolve(self, event_id: str, contents: Iterable[ContentBlock], *, is_error: bool) -> None:
        """Takes the result that the event `event_id` tells of."""
        block = content.tool_result(self.model_call_id, content.blocks(contents), is_error=is_error)
        self.result = Result(block, event_id)


def from_tool_use(
    event_id: str, use: AgentToolUse, custom: Iterable[str], *, self_hosted: bool = False
) -> Call:
    """The call of an `agent.tool_use`; `custom` are the names of the agent's own tools.

    In a self-hosted environment its workers run the sandbox's tools, and no others.
    """
    call = Call(
        event_id, use.name, use.input or "{}", use.model_call_id or event_id, Answerer.HANDS
    )
    call.hosted = self_hosted and use.name in SANDBOX_TOOLS
    if use.evaluated_permission == EVALUATED_PERMISSION_ASK:
        call.answerer, call.asked = Answerer.CLIENT, True
    elif use.evaluated_permission != EVALUATED_PERMISSION_ALLOW:
        call.answerer = Answerer.HARNESS
        call.refusal = _refusal(use, custom)
    elif use.name == HISTORY_TOOL:
        call.answerer = Answerer.LOG
    elif call.hosted:
        call.answerer = Answerer.WORKER
    return call


def from_mcp_tool_use(event_id: str, use: AgentMcpToolUse, *, unreachable: bool = False) -> Call:
    """The call of an `agent.mcp_tool_use`; `unreachable` says that of its server."""
    name = use.offered_name or use.name
    call = Call(event_id, name, use.input or "{}", use.model_call_id or event_id, Answerer.HANDS)
    call.server, call.tool = use.mcp_server_name, use.name
    if use.evaluated_permission == EVALUATED_PERMISSION_ASK:
        call.answerer, call.asked = Answerer.CLIENT, True
    elif use.evaluated_permission != EVALUATED_PERMISSION_ALLOW:
        call.answerer = Answerer.HARNESS
        if use.HasField("malformed_input"):
            call.refusal = _malformed(use.name)
        elif unreachable and not use.HasField("evaluation"):
            call.refusal = (
                f"The MCP server {use.mcp_server_name} cannot be reached at present. "
                "Nothing was run."
            )
        else:
            call.refusal = _denied(use.name)
    return call


def answered_by(event: Event) -> str:
    """The id of the call whose result the event is; empty for one that is no result."""
    name = event.WhichOneof("payload")
    field = _RESULTS.get(name or "")
    return getattr(getattr(event, name), field) if name and field else ""


def answer_in(event: Event) -> Answer:
    """What the result that the event is says."""
    if event.HasField("agent_tool_result"):
        return event.agent_tool_result
    if event.HasField("agent_mcp_tool_result"):
        return event.agent_mcp_tool_result
    if event.HasField("user_tool_result"):
        return event.user_tool_result
    return event.user_custom_tool_result


def from_custom_tool_use(
    event_id: str, use: AgentCustomToolUse, *, self_hosted: bool = False
) -> Call:
    """The call of an `agent.custom_tool_use`."""
    called = use.model_call_id or event_id
    return Call(event_id, use.name, use.input or "{}", called, Answerer.CLIENT, hosted=self_hosted)


def _refusal(use: AgentToolUse, custom: Iterable[str]) -> str:
    if use.HasField("malformed_input"):
        return _malformed(use.name)
    if use.name in SANDBOX_TOOLS or use.name in WEB_TOOLS or use.name in custom:
        return _denied(use.name)
    return f"There is no tool named {use.name}. Nothing was run."


def _malformed(name: str) -> str:
    return (
        f"The input of this {name} call was not a JSON object, so nothing was run. "
        "Call the tool again with a valid JSON object as its input."
    )


def _denied(name: str) -> str:
    return f"Permission to use {name} has been denied."
