"""One trace a turn, across HTTP, gRPC and processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.doubles.messages_api import ToolUse, text, tools
from tests.doubles.otlp_collector import Collector
from tests.e2e.driving import new_session, run_turn
from tests.e2e.stack import Stack, running_stack

CONTENT = "a text that stays out of traces"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Collector]]:
    """A stack that exports to a collector in this process."""
    with (
        Collector() as collector,
        running_stack(tmp_path_factory.mktemp("traced"), **collector.settings) as stack,
    ):
        yield stack, collector


def test_turn_is_one_trace_whose_spans_join_across_processes(
    traced: tuple[Stack, Collector],
) -> None:
    stack, collector = traced
    stack.model.script(tools(ToolUse("bash", {"command": f"echo {CONTENT}"})), text(CONTENT))
    with stack.client() as client:
        session = new_session(client)
        collector.spans.clear()
        run_turn(client, session.id, CONTENT)

    def spans(prefix: str) -> list[tuple[str, Span]]:
        return [pair for pair in list(collector.spans) if pair[1].name.startswith(prefix)]

    stack.wait_for(
        lambda: spans("invoke_agent") and len(spans("chat")) == 2 and spans("execute_tool"),
        "the turn's spans",
    )
    [(owner, turn)] = spans("invoke_agent")
    assert "brain" in owner
    stack.wait_for(
        lambda: (
            {"gateway", "session", "brain", "hands"}
            <= {
                word
                for name, span in list(collector.spans)
                if span.trace_id == turn.trace_id
                for word in ("gateway", "session", "brain", "hands")
                if word in name
            }
        ),
        "spans of four processes in one trace",
    )

    def orphans() -> list[str]:
        """Spans whose parent has not come; each process sends its own when it thinks fit."""
        ours = [s for _, s in list(collector.spans) if s.trace_id == turn.trace_id]
        known = {b"", *(s.span_id for s in ours)}
        return [s.name for s in ours if s.parent_span_id not in known]

    stack.wait_for(lambda: not orphans(), "the parents of all spans")
    roots = [s for _, s in collector.spans if s.trace_id == turn.trace_id and not s.parent_span_id]
    assert len(roots) == 1
    for _, inner in (*spans("chat"), *spans("execute_tool")):
        assert inner.trace_id == turn.trace_id
        assert inner.parent_span_id == turn.span_id
    attributes = {a.key: a.value for a in turn.attributes}
    assert attributes["gen_ai.conversation.id"].string_value == session.id
    assert attributes["gen_ai.operation.name"].string_value == "invoke_agent"
    chat = {a.key: a.value for a in spans("chat")[0][1].attributes}
    assert chat["gen_ai.provider.name"].string_value == "anthropic"
    assert chat["gen_ai.usage.input_tokens"].int_value > 0
    everything = repr([span for _, span in collector.spans])
    assert CONTENT not in everything
    assert stack.token not in everything
    assert stack.key not in everything
