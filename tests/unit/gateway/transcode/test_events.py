"""Every event that HTTP shows is one that the official client's own types take."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from anthropic.types.beta.sessions import (
    BetaManagedAgentsSessionEventType,
    BetaManagedAgentsStreamSessionEvents,
)
from pydantic import TypeAdapter

from drover.event.v1 import event_pb2
from drover.session.v1 import preview_pb2
from gateway.transcode.encode import Encoders
from gateway.transcode.shape import Shapes
from tests.unit.gateway.transcode.messages import full

SHAPES = Shapes()
ENCODERS = Encoders(SHAPES)
EVENTS: Any = TypeAdapter(BetaManagedAgentsStreamSessionEvents)
VARIANTS = SHAPES.of(event_pb2.Event.DESCRIPTOR).union.variants
PREVIEWS = SHAPES.of(preview_pb2.Preview.DESCRIPTOR).union.variants

# Where the client knows only some texts.
SAMPLES = {
    "RefusalDetails.category": "cyber",
    "SpanOutcomeEvaluationEnd.result": "satisfied",
    "ModelUsage.speed": "standard",
    "MonetaryAmount.amount": "2500",
    "MonetaryAmount.currency": "USD",
    "AutoAsk.reason_code": "indeterminate",
    "AutoDeny.reason_code": "high_risk",
    "AgentToolConfig.name": "bash",
    "AgentToolConfig.type": "bash",
    "AgentToolConfig.allowed_domains": None,  # of the web tools
    "AgentToolConfig.blocked_domains": None,
    "AgentToolConfig.max_content_tokens": None,
    "AgentToolConfig.url_sources": None,
    "AgentToolConfig.user_location": None,
    "Base64Source.media_type": "image/png",
    "ModelConfig.inference_geo": "us",
    "PreviewedEvent.type": "agent.message",
    "SessionAgent.multiagent": None,  # the client wants resolved agents in a session's roster
}


def shown(message: Any) -> Any:
    return orjson.loads(ENCODERS.of(message.DESCRIPTOR).encode(message))


def test_the_clients_list_of_types_is_the_contracts() -> None:
    listed = set(BetaManagedAgentsSessionEventType.__args__)
    assert listed | {"session.deleted"} == {variant.tag for variant in VARIANTS}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.tag)
def test_client_takes_an_event_with_every_field(variant: Any) -> None:
    event = event_pb2.Event()
    getattr(event, variant.name).SetInParent()
    full(event, SHAPES, SAMPLES)

    taken = EVENTS.validate_python(shown(event))

    assert taken.type == variant.tag
    assert taken.id == "text"
    assert _without_extras(taken) == []


@pytest.mark.parametrize("variant", PREVIEWS, ids=lambda variant: variant.tag)
def test_client_takes_a_preview(variant: Any) -> None:
    preview = preview_pb2.Preview()
    getattr(preview, variant.name).SetInParent()
    full(preview, SHAPES, SAMPLES)

    taken = EVENTS.validate_python(shown(preview))

    assert taken.type == variant.tag
    assert not hasattr(taken, "id")


INNER = [
    (outer, inner, variant)
    for outer, inner, left_out in (
        ("session_status_idle", "stop_reason", set()),
        ("session_error", "error", set()),
        ("agent_tool_use", "evaluation", set()),
        ("workflow_run_status_ended", "result", set()),
        ("agent_message", "content", {"image", "document", "search_result"}),
        ("user_message", "content", {"search_result", "redacted"}),
        ("user_custom_tool_result", "content", {"redacted"}),
    )
    for variant in SHAPES.of(
        event_pb2.Event.DESCRIPTOR.fields_by_name[outer]
        .message_type.fields_by_name[inner]
        .message_type
    ).union.variants
    if variant.tag not in left_out
]


@pytest.mark.parametrize(("outer", "inner", "variant"), INNER, ids=lambda part: str(part)[:40])
def test_client_takes_every_variant_within_an_event(outer: str, inner: str, variant: Any) -> None:
    event = event_pb2.Event()
    getattr(event, outer).SetInParent()
    full(event, SHAPES, SAMPLES)
    holder = getattr(event, outer)
    single = (
        not event.DESCRIPTOR.fields_by_name[outer].message_type.fields_by_name[inner].is_repeated
    )
    target = getattr(holder, inner) if single else getattr(holder, inner)[0]
    target.Clear()
    getattr(target, variant.name).SetInParent()
    full(target, SHAPES, SAMPLES)

    taken = getattr(EVENTS.validate_python(shown(event)), inner)

    assert (taken if single else taken[0]).type == variant.tag


def _without_extras(model: Any, path: str = "") -> list[str]:
    """What the client's types do not name: a misspelled field would show up here."""
    if isinstance(model, list):
        return [found for item in model for found in _without_extras(item, path)]
    if not hasattr(model, "model_extra"):
        return []
    found = [f"{path}.{key}" for key in model.model_extra or ()]
    for key in type(model).model_fields:
        found += _without_extras(getattr(model, key), f"{path}.{key}")
    return found


def test_an_update_that_removed_the_budget_says_null_and_any_other_nothing() -> None:
    event = event_pb2.Event(id="sevt_1")
    event.session_updated.title = "t"
    assert "budget" not in shown(event)
    event.session_updated.budget_removed = True
    assert shown(event)["budget"] is None
    assert "budget_removed" not in shown(event)
