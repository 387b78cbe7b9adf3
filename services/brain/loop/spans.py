"""The brain's spans by the GenAI conventions; nothing is done while tracing is off."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind, StatusCode

from chassis.telemetry import names, tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.trace import Span

    from services.brain.domain.calls import Call
    from services.brain.domain.response import ResponseAssembler
    from services.brain.domain.state import State

Scope = AbstractContextManager["Span | None"]

_NAME = "services.brain"
_OFF: Scope = nullcontext()


def invoke_agent(state: State) -> Scope:
    """The span of one turn."""
    if not tracing.enabled():
        return _OFF
    agent = state.agent
    return _start(
        f"{names.INVOKE_AGENT} {agent.name}",
        SpanKind.INTERNAL,
        {
            names.OPERATION_NAME: names.INVOKE_AGENT,
            names.AGENT_ID: agent.id,
            names.AGENT_NAME: agent.name,
            names.AGENT_VERSION: str(agent.version),
            names.CONVERSATION_ID: state.session_id,
            names.REQUEST_MODEL: agent.model.id,
        },
    )


def chat(state: State, model: str) -> Scope:
    """The span of one model request."""
    if not tracing.enabled():
        return _OFF
    return _start(
        f"{names.CHAT} {model}",
        SpanKind.CLIENT,
        {
            names.OPERATION_NAME: names.CHAT,
            names.PROVIDER_NAME: "anthropic",
            names.REQUEST_MODEL: model,
            names.REQUEST_STREAM: True,
            names.CONVERSATION_ID: state.session_id,
        },
    )


def answered(span: Span | None, response: ResponseAssembler) -> None:
    """Notes what came of a model request."""
    if span is None:
        return
    usage = response.usage()
    span.set_attributes(
        {
            names.RESPONSE_ID: response.message_id,
            names.RESPONSE_MODEL: response.model,
            names.RESPONSE_FINISH_REASONS: [response.stop_reason],
            names.USAGE_INPUT_TOKENS: usage.input_tokens,
            names.USAGE_OUTPUT_TOKENS: usage.output_tokens,
            names.USAGE_CACHE_READ: usage.cache_read_input_tokens,
            names.USAGE_CACHE_WRITE: usage.cache_creation_input_tokens,
        }
    )


def execute_tool(call: Call) -> Scope:
    """The span of one tool call."""
    if not tracing.enabled():
        return _OFF
    return _start(
        f"{names.EXECUTE_TOOL} {call.name}",
        SpanKind.INTERNAL,
        {
            names.OPERATION_NAME: names.EXECUTE_TOOL,
            names.TOOL_NAME: call.name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL_ID: call.id,
        },
    )


def failed(span: Span | None, kind: str) -> None:
    """Marks a span as failed."""
    if span is not None:
        span.set_attribute(names.ERROR_TYPE, kind)
        span.set_status(StatusCode.ERROR)


def _start(name: str, kind: SpanKind, attributes: Mapping[str, str | bool]) -> Scope:
    return tracing.tracer(_NAME).start_as_current_span(
        name,
        kind=kind,
        attributes=dict(attributes),
        record_exception=False,  # messages may quote what a model or a tool has said
        set_status_on_exception=False,
    )
