"""What a trace tells of a request that went out."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chassis.telemetry import tracing
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.domain.session import SessionFacts
from services.vault_proxy.proxy.egress import Asked
from services.vault_proxy.proxy.spans import request_span
from tests.doubles.egress import session, target


def test_a_span_names_the_host_and_neither_path_nor_query(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(tracing, "_provider", provider)
    facts = SessionFacts("wrkspc_1", "hand_1", session())
    asked = Asked(facts, target("https://api.example.com/secret?token=secret"))
    refusal = Refusal(Why.HOST_BROKEN, "a secret", 502)
    with pytest.raises(RefusedError), request_span(asked):
        raise RefusedError(refusal)
    (span,) = kept.get_finished_spans()
    assert span.name == "egress GET"
    assert span.attributes is not None
    assert span.attributes["server.address"] == "api.example.com"
    assert span.attributes["gen_ai.conversation.id"] == "sesn_1"
    assert span.attributes["error.type"] == "host_broken"
    assert "secret" not in span.to_json()


def test_without_a_collector_there_is_no_span() -> None:
    with request_span(Asked()):
        pass
