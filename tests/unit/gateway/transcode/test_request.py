from __future__ import annotations

import pytest

from chassis.errors import DroverError
from drover.agent.v1 import agent_service_pb2 as agents
from drover.session.v1 import session_service_pb2 as sessions
from gateway.transcode.decode import Decoders
from gateway.transcode.request import RequestDecoder
from gateway.transcode.shape import Shapes

DECODERS = Decoders(Shapes())
EVENTS = RequestDecoder(sessions.GetEventsRequest.DESCRIPTOR, ["session_id"], DECODERS, body=False)
LIST = RequestDecoder(agents.ListAgentsRequest.DESCRIPTOR, [], DECODERS, body=False)


def events(query: str, body: bytes = b"") -> sessions.GetEventsRequest:
    return EVENTS.decode({"session_id": "s"}, query.encode(), {}, body)


def test_parameters_are_read_as_the_official_client_writes_them() -> None:
    request = events(
        "types%5B%5D=user.message&types%5B%5D=agent.message&order=desc&limit=5"
        "&created_at%5Bgte%5D=2026-11-01T00%3A00%3A00%2B00%3A00&beta=true"
    )
    assert list(request.types) == ["user.message", "agent.message"]
    assert request.order == sessions.SORT_ORDER_DESC
    assert request.limit == 5
    assert request.created_at_gte.ToJsonString() == "2026-11-01T00:00:00Z"
    assert not request.HasField("page")


def test_a_list_is_taken_with_brackets_and_without() -> None:
    assert events("types=user.message&types=agent.message") == events(
        "types[]=user.message&types[]=agent.message"
    )


@pytest.mark.parametrize("value", ["true", "false"])
def test_booleans_are_true_or_false(value: str) -> None:
    request = LIST.decode({}, f"include_archived={value}".encode(), {}, b"")
    assert request.include_archived is (value == "true")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("after_seq=1", "after_seq: unknown query parameter"),
        ("session_id=other", "session_id: unknown query parameter"),
        ("created_at_gte=x", "created_at_gte: unknown query parameter"),
        ("limit[]=1", "limit[]: unknown query parameter"),
        ("limit=1&limit=2", "limit: is given twice"),
        ("limit=", "limit: must be an integer"),
        ("limit=1.0", "limit: must be an integer"),
        ("limit=+1", "limit: must be an integer"),
        ("limit=99999999999", "limit: must be between -2147483648 and 2147483647"),
        ("order=up", "order: must be one of asc, desc"),
        ("types=nope", "types.0: must be the type of an event that clients see"),
        (
            "types[]=user.message&types[]=x",
            "types.1: must be the type of an event that clients see",
        ),
        (
            "created_at[gt]=yesterday",
            "created_at[gt]: must be an RFC 3339 timestamp such as 2026-01-31T12:00:00Z",
        ),
        ("page=%FF", "the query string must be percent-encoded UTF-8"),
        ("page=\xff", "the query string must be percent-encoded UTF-8"),
        ("types=user.message&" * 1_001, "at most 1000 query parameters are allowed"),
    ],
)
def test_parameters_that_the_contract_does_not_know_are_refused(query: str, message: str) -> None:
    with pytest.raises(DroverError) as refused:
        events(query)
    assert refused.value.message == message


@pytest.mark.parametrize("value", ["True", "1", "", "yes"])
def test_other_booleans_are_refused(value: str) -> None:
    with pytest.raises(DroverError, match="include_archived: must be true or false"):
        LIST.decode({}, f"include_archived={value}".encode(), {}, b"")


def test_an_action_without_fields_takes_an_empty_object_only() -> None:
    assert events("", b"{}") == events("")
    with pytest.raises(DroverError, match="x: unknown field"):
        events("", b'{"x":1}')
