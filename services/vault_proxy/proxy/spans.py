"""Spans of requests that go out: where to and for whom, and neither path nor headers."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind, StatusCode

from chassis.telemetry import names, tracing
from services.vault_proxy.domain.refusal import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.domain.target import Target
    from services.vault_proxy.proxy.egress import Asked


def request_span(asked: Asked) -> AbstractContextManager[None]:
    """A span for a request that was allowed."""
    if not tracing.enabled() or asked.facts is None or asked.target is None:
        return nullcontext()
    return _span(asked.facts, asked.target)


@contextmanager
def _span(facts: SessionFacts, target: Target) -> Iterator[None]:
    with tracing.tracer(__name__).start_as_current_span(
        f"egress {target.method}",
        kind=SpanKind.CLIENT,
        attributes={
            "gen_ai.conversation.id": facts.session_id,
            "http.request.method": target.method,
            "server.address": target.host.text,
            "server.port": target.port,
            "url.scheme": target.scheme,
        },
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except RefusedError as error:
            span.set_attribute(names.ERROR_TYPE, error.refusal.reason)
            span.set_status(StatusCode.ERROR)
            raise
