"""The description says what the gateway does: both are made from the same shapes."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chassis.errors import DroverError
from gateway.services import SERVED
from gateway.transcode.openapi import describe
from gateway.transcode.routes import Contract, Kind
from tests.unit.gateway.transcode.messages import messages

CONTRACT = Contract(SERVED)
OPENAPI = describe(CONTRACT, "1")
UNARY = [route for route in CONTRACT.routes if route.kind in {Kind.UNARY, Kind.UPLOAD}]
BODIES = [route for route in UNARY if route.body]


def operation(route: Any) -> Any:
    return OPENAPI["paths"][route.template][route.verb.lower()]


def _validator(schema: Any) -> Any:
    return jsonschema_rs.validator_for({**schema, "components": OPENAPI["components"]})


def name(route: Any) -> str:
    return f"{route.verb} {route.template}"


BODY_VALIDATORS = {
    name(route): _validator(
        operation(route)["requestBody"]["content"]["application/json"]["schema"]
    )
    for route in BODIES
}


def answer_of(route: Any) -> Any:
    return operation(route)["responses"]["200"]["content"]["application/json"]["schema"]


ANSWERS = {(route.answer.full_name, orjson.dumps(answer_of(route))): route for route in UNARY}
"""Many routes answer with one message, described alike."""
ANSWER_VALIDATORS = {route.answer: _validator(answer_of(route)) for route in ANSWERS.values()}


def test_every_route_is_described_once() -> None:
    described = {(verb.upper(), path) for path, verbs in OPENAPI["paths"].items() for verb in verbs}
    assert described == {(route.verb, route.template) for route in CONTRACT.routes}
    ids = [one["operationId"] for verbs in OPENAPI["paths"].values() for one in verbs.values()]
    assert len(ids) == len(set(ids)) == len(CONTRACT.routes)


def test_no_reference_leads_nowhere_and_no_component_is_idle() -> None:
    text = orjson.dumps(OPENAPI).decode()
    for kind in ("schemas", "responses"):
        for component in OPENAPI["components"][kind]:
            assert f'"#/components/{kind}/{component}"' in text, component
    for part in text.split('"$ref":"#/components/')[1:]:
        kind, component = part.split('"', 1)[0].split("/")
        assert component in OPENAPI["components"][kind]


def test_internal_fields_are_described_nowhere() -> None:
    text = orjson.dumps(OPENAPI).decode()
    for internal in ("generation", "model_call_id", "signature", "after_seq", "primary_thread_id"):
        assert f'"{internal}"' not in text


@pytest.mark.parametrize("route", ANSWERS.values(), ids=name)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_answers_fit_their_description(route: Any, data: Any) -> None:
    message = data.draw(messages(route.answer, CONTRACT.shapes))
    members = orjson.loads(CONTRACT.encoders.of(route.answer).encode(message))
    assert [str(e) for e in ANSWER_VALIDATORS[route.answer].iter_errors(members)] == []


VALID = [
    ("POST /v1/agents", {"model": "m", "name": "n"}),
    (
        "POST /v1/agents",
        {"model": {"id": "m", "effort": {"type": "low"}}, "name": "n", "tools": []},
    ),
    ("POST /v1/agents/{agent_id}", {}),
    ("POST /v1/agents/{agent_id}", {"system": None, "metadata": {"a": None, "b": "c"}}),
    ("POST /v1/environments", {"name": "e", "config": {"type": "cloud", "packages": None}}),
    ("POST /v1/sessions", {"agent": "a", "environment_id": "e", "budget": None}),
    (
        "POST /v1/sessions/{session_id}/events",
        {"events": [{"type": "user.message", "content": [{"type": "text", "text": "x"}]}]},
    ),
    ("POST /v1/sessions/{session_id}/events", {"events": [{"type": "user.interrupt"}]}),
]
INVALID = [
    ("POST /v1/agents", {"name": "n"}),
    ("POST /v1/agents", {"model": "", "name": "n"}),
    ("POST /v1/agents", {"model": "m", "name": "n" * 257}),
    ("POST /v1/agents", {"model": "m", "name": None}),
    ("POST /v1/agents", {"model": "m", "name": "n", "id": "agent_1"}),
    ("POST /v1/agents", {"model": {"id": "m", "effort": "extreme"}, "name": "n"}),
    ("POST /v1/agents", {"model": "m", "name": "n", "metadata": {"k" * 65: ""}}),
    ("POST /v1/agents", {"model": "m", "name": "n", "tools": [{"name": "x"}]}),
    ("POST /v1/agents/{agent_id}", {"model": None}),
    ("POST /v1/agents/{agent_id}", {"version": 0}),
    ("POST /v1/sessions/{session_id}/events", {}),
    ("POST /v1/sessions/{session_id}/events", {"events": []}),
    ("POST /v1/sessions/{session_id}/events", {"events": [{"type": "agent.message"}]}),
    ("POST /v1/sessions/{session_id}/events", {"events": [{"type": "user.interrupt", "seq": 1}]}),
]


@pytest.mark.parametrize(("at", "body"), VALID)
def test_good_requests_fit(at: str, body: Any) -> None:
    route = next(route for route in BODIES if name(route) == at)
    assert [str(e) for e in BODY_VALIDATORS[name(route)].iter_errors(body)] == []


@pytest.mark.parametrize(("at", "body"), INVALID)
def test_bad_requests_do_not_fit(at: str, body: Any) -> None:
    route = next(route for route in BODIES if name(route) == at)
    assert not BODY_VALIDATORS[name(route)].is_valid(body)


@pytest.mark.parametrize("route", BODIES, ids=name)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_the_codec_refuses_does_not_fit_the_description(route: Any, data: Any) -> None:
    """Arbitrary changes to a good body: whatever fits the description must be read."""
    message = data.draw(messages(route.method.input_type, CONTRACT.shapes))
    members = orjson.loads(CONTRACT.encoders.of(route.method.input_type).encode(message))
    for elsewhere in route.request.elsewhere:
        members.pop(elsewhere, None)
    if members and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(members)))
        members[key] = data.draw(
            st.sampled_from([None, 1, "x", [], {}, [None], ["x"], {"type": "x"}, {"id": "x"}, True])
        )
    if BODY_VALIDATORS[name(route)].is_valid(members):
        path = dict.fromkeys(route.request.path, "x")
        route.request.decode(path, b"", {}, orjson.dumps(members))


def test_the_examples_above_are_read_or_refused_alike() -> None:
    for at, body in VALID:
        route = next(route for route in BODIES if name(route) == at)
        assert route.request.decode(
            dict.fromkeys(route.request.path, "x"), b"", {}, orjson.dumps(body)
        )
    with pytest.raises(DroverError):
        BODIES[0].request.decode({}, b"", {}, b'{"x":1}')
