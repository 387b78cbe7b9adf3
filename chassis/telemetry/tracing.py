# ruff: noqa: PLC0415  # the SDK and its exporters are slow to import, and mostly not wanted
"""OpenTelemetry traces, exported only when the standard `OTEL_*` variables name a collector.

Without one nothing is recorded: `tracer` gives spans that do nothing, the SDK is not imported and
no trace context is put on the wire.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import NoOpTracer, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from chassis.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

_W3C = TraceContextTextMapPropagator()
_OFF = NoOpTracer()
_PACKAGES = {"http/protobuf": "http", "grpc": "grpc"}  # by OTLP protocol

_provider: TracerProvider | None = None


def setup(service_name: str) -> None:
    """Starts to record and export, if `OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT` is set.

    Protocol, headers, sampling and further resource attributes follow `OTEL_*` as usual. Raises
    `ValueError` for an OTLP protocol that does not exist.
    """
    global _provider  # noqa: PLW0603  # OpenTelemetry's provider is one per process, too
    if not _variable("ENDPOINT") or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    protocol = _variable("PROTOCOL") or "http/protobuf"
    if protocol not in _PACKAGES:
        raise ValueError(f"no OTLP protocol {protocol!r}: use {' or '.join(_PACKAGES)}")
    package = f"opentelemetry.exporter.otlp.proto.{_PACKAGES[protocol]}"
    exporter = import_module(f"{package}.trace_exporter").OTLPSpanExporter()
    resource = Resource.create({"service.name": service_name, "service.namespace": "drover"})
    _provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    _provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(_provider)


def shutdown() -> None:
    """Exports what is recorded and stops recording; a collector that is away costs 2 s at most."""
    global _provider  # noqa: PLW0603
    if _provider is not None:
        # On a thread, since the exporter's own time-outs add up to several times as much.
        flushing = threading.Thread(target=_provider.shutdown, daemon=True)
        flushing.start()
        flushing.join(timeout=2)
        _provider = None


def enabled() -> bool:
    """Whether spans are recorded."""
    return _provider is not None


def tracer(name: str) -> Tracer:
    """The tracer for a part of Drover; `name` is its module. Get it where a span starts."""
    return _OFF if _provider is None else _provider.get_tracer(name)


def server_span(
    name: str, headers: Iterable[tuple[str, str | bytes]], attributes: Mapping[str, str]
) -> AbstractContextManager[object]:
    """A span for a request received, child of the span whose W3C context `headers` carry."""
    if _provider is None:
        return nullcontext()
    carrier = {key: str(value) for key, value in headers if key in _W3C.fields}
    return tracer(__name__).start_as_current_span(
        name,
        context=_W3C.extract(carrier),
        kind=SpanKind.SERVER,
        attributes=attributes,
        record_exception=False,  # messages may quote what a caller sent
        set_status_on_exception=False,
    )


def record_failure(grpc_status: str, reason: str, *, fault: bool) -> None:
    """Notes on the current span how its RPC failed, and whether that is the server's fault."""
    span = trace.get_current_span()
    span.set_attribute(names.RPC_RESPONSE_STATUS_CODE, grpc_status)
    span.set_attribute(names.ERROR_TYPE, reason)
    if fault:
        span.set_status(StatusCode.ERROR)


def outbound() -> Iterable[tuple[str, str]]:
    """The headers that make a call's span a child of the current one."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.items()


def trace_id() -> str | None:
    """The current trace's id in hexadecimal, if there is one."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None


def _variable(name: str) -> str | None:
    prefix = "OTEL_EXPORTER_OTLP_"
    return os.environ.get(f"{prefix}TRACES_{name}") or os.environ.get(f"{prefix}{name}")
