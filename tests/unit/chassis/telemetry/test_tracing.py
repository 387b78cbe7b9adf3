from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from chassis.telemetry import names, tracing


def test_span_of_a_request_is_a_child_of_the_callers_span(spans):
    with tracing.tracer("caller").start_as_current_span("invoke_agent"):
        headers = [*tracing.outbound(), ("user-agent", "x")]
    with tracing.server_span("drover.x/Y", headers, {"rpc.method": "drover.x/Y"}):
        assert tracing.trace_id() == f"{spans()[0].context.trace_id:032x}"
    parent, child = spans()
    assert child.parent.span_id == parent.context.span_id
    assert child.context.trace_id == parent.context.trace_id
    assert child.kind is SpanKind.SERVER


@pytest.mark.parametrize("header", ["", "00-zz-zz-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_broken_trace_context_starts_a_new_trace(spans, header):
    with tracing.server_span("x", [("traceparent", header)], {}):
        pass
    assert spans()[0].parent is None


@pytest.mark.parametrize(
    ("fault", "expected"), [(False, StatusCode.UNSET), (True, StatusCode.ERROR)]
)
def test_only_the_servers_own_faults_mark_a_span_as_failed(spans, fault, expected):
    def serve() -> None:
        with tracing.server_span("x", [], {}):
            tracing.record_failure("ABORTED", "SOME_REASON", fault=fault)
            raise LookupError("with the caller's own words")

    with pytest.raises(LookupError):
        serve()
    (span,) = spans()
    assert span.status.status_code is expected
    assert span.attributes[names.ERROR_TYPE] == "SOME_REASON"
    assert span.events == ()


def test_without_a_collector_nothing_is_recorded_sent_or_imported():
    script = """
import sys
from chassis.telemetry import tracing
tracing.setup("session")
assert not tracing.enabled()
with tracing.tracer("x").start_as_current_span("chat") as span:
    assert not span.is_recording()
    assert list(tracing.outbound()) == [] and tracing.trace_id() is None
    tracing.record_failure("INTERNAL", "x", fault=True)
tracing.shutdown()
assert not any(name.startswith("opentelemetry.sdk") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=_environment())


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_collector_in_the_environment_turns_tracing_on_and_shutdown_is_quick(protocol):
    script = """
import time
from chassis.telemetry import tracing
tracing.setup("session")
assert tracing.enabled()
with tracing.tracer("x").start_as_current_span("chat") as span:
    assert dict(span.resource.attributes)["service.name"] == "session"
started = time.monotonic()
tracing.shutdown()
assert time.monotonic() - started < 20, "the collector is away: exiting must not hang"
"""
    environment = _environment(
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        OTEL_EXPORTER_OTLP_TIMEOUT="600",  # s, so that it would take half a minute by itself
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)


def test_unknown_protocol_is_refused(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    with pytest.raises(ValueError, match="http/protobuf or grpc"):
        tracing.setup("session")


def test_sdk_switched_off_stays_off(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    tracing.setup("session")
    assert not tracing.enabled()


def _environment(**variables: str) -> dict[str, str]:
    return {"PATH": "", **variables}
