"""The brain's spans by the GenAI conventions; nothing is done while tracing is off."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind, StatusCode

from chassis.telemetry import names, tracing
from services.brain.loop import genai

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
        f"{genai.INVOKE_AGENT} {agent.name}",
        SpanKind.INTERNAL,
        {
            genai.OPERATION_NAME: genai.INVOKE_AGENT,
            genai.AGENT_ID: agent.id,
            genai.AGENT_NAME: agent.name,
            genai.AGENT_VERSION: str(agent.version),
            genai.CONVERSATION_ID: state.session_id,
            genai.REQUEST_MODEL: agent.model.id,
        },
    )


def chat(state: State, model: str, provider: str) -> Scope:
    """The span of one model request."""
    if not tracing.enabled():
        return _OFF
    return _start(
        f"{genai.CHAT} {model}",
        SpanKind.CLIENT,
        {
            genai.OPERATION_NAME: genai.CHAT,
            genai.PROVIDER_NAME: provider,
            genai.REQUEST_MODEL: model,
            genai.REQUEST_STREAM: True,
            genai.CONVERSATION_ID: state.session_id,
        },
    )


def answered(span: Span | None, response: ResponseAssembler) -> None:
    """Notes what came of a model request."""
    if span is None:
        return
    usage = response.usage()
    span.set_attributes(
        {
            genai.RESPONSE_ID: response.message_id,
            genai.RESPONSE_MODEL: response.model,
            genai.RESPONSE_FINISH_REASONS: [response.stop_reason],
            genai.USAGE_INPUT_TOKENS: usage.input_tokens,
            genai.USAGE_OUTPUT_TOKENS: usage.output_tokens,
            genai.USAGE_CACHE_READ: usage.cache_read_input_tokens,
            genai.USAGE_CACHE_WRITE: usage.cache_creation_input_tokens,
        }
    )


def execute_tool(call: Call) -> Scope:
    """The span of one tool call."""
    if not tracing.enabled():
        return _OFF
    name = call.tool or call.name
    attributes = {
        genai.OPERATION_NAME: genai.EXECUTE_TOOL,
        genai.TOOL_NAME: name,
        genai.TOOL_TYPE: "extension" if call.server else "function",
        genai.TOOL_CALL_ID: call.id,
    }
    if call.server:
        attributes[genai.MCP_SERVER] = call.server
    return _start(f"{genai.EXECUTE_TOOL} {name}", SpanKind.INTERNAL, attributes)


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
