"""One trace a turn, across HTTP, gRPC and processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import new_session, run_turn
from tests.e2e.stack import Stack, running_stack

CONTENT = "a text that stays out of traces"


class Collector:
    """An OTLP receiver in this process. Keeps (service, span) pairs."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(names["service.name"], span) for span in scope.spans]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Collector]]:
    """A stack that exports to a collector in this process."""
    settings = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with (
        Collector() as collector,
        running_stack(
            tmp_path_factory.mktemp("traced"),
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            **settings,
        ) as stack,
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
    whole = {s.span_id: (name, s) for name, s in collector.spans if s.trace_id == turn.trace_id}
    roots = [span for _, span in whole.values() if not span.parent_span_id]
    assert len(roots) == 1
    for _, span in whole.values():
        assert not span.parent_span_id or span.parent_span_id in whole, span.name
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
