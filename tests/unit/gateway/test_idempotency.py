"""What makes two HTTP requests the same one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.requests import Request

from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from gateway.auth import Caller
from gateway.idempotency import RequestKeys

KEYS = RequestKeys(Secret("installation"))
CALLER = Caller("wrkspc_default", b"digest of a key")
NOW = datetime(2026, 11, 29, 12, 0, 0, 123_456, tzinfo=UTC)
BODY = b'{"title": "secret plans"}'


def request(
    *headers: tuple[str, str], verb: str = "POST", path: str = "/v1/sessions", query: str = ""
) -> Request:
    return Request(
        {
            "type": "http",
            "method": verb,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        }
    )


def key(*headers: tuple[str, str], **given: Any) -> Any:
    keys, caller = given.pop("keys", KEYS), given.pop("caller", CALLER)
    body = given.pop("body", BODY)
    return keys.of(caller, request(*headers, **given), body, NOW)


def named(value: str, **given: Any) -> Any:
    return key(("Idempotency-Key", value), **given)


def counted(count: int, **given: Any) -> Any:
    return key(("x-stainless-retry-count", str(count)), **given)


OTHERS: list[dict[str, Any]] = [
    {"body": b'{"title": "other plans"}'},
    {"path": "/v1/agents"},
    {"query": "beta=true"},
    {"verb": "DELETE"},
]
FOREIGN: list[dict[str, Any]] = [
    {"caller": Caller("wrkspc_default", b"digest of another key")},
    {"caller": Caller("wrkspc_other", b"digest of a key")},
    {"keys": RequestKeys(Secret("another installation"))},
]


def test_a_client_that_neither_names_nor_counts_its_requests_has_no_key() -> None:
    assert key() is None


@pytest.mark.parametrize("count", ["", "-1", "+1", "1.0", "one", "99999", "²"])
def test_what_is_no_count_is_not_taken_for_one(count: str) -> None:
    assert key(("x-stainless-retry-count", count)) is None


def test_a_repetition_has_the_key_of_the_first_attempt() -> None:
    first, again = counted(0), counted(2)
    assert first.id == again.id
    assert (first.attempt, again.attempt) == (0, 2)
    assert not first.fingerprint
    assert first.received_at.ToMicroseconds() == int(NOW.timestamp()) * 1_000_000 + 123_456


@pytest.mark.parametrize("other", OTHERS + FOREIGN)
def test_another_request_has_another_key(other: dict[str, Any]) -> None:
    assert counted(1).id != counted(1, **other).id


@pytest.mark.parametrize("other", OTHERS)
def test_a_name_stays_the_same_over_another_request_and_tells_it_by_the_fingerprint(
    other: dict[str, Any],
) -> None:
    one, two = named("k"), named("k", **other)
    assert one.id == two.id
    assert one.fingerprint != two.fingerprint


@pytest.mark.parametrize("other", FOREIGN)
def test_the_same_name_of_another_caller_is_another_one(other: dict[str, Any]) -> None:
    assert named("k").id != named("k", **other).id


def test_a_name_goes_before_a_count() -> None:
    both = key(("Idempotency-Key", "k"), ("x-stainless-retry-count", "1"))
    assert both == named("k")
    assert both.id != counted(1).id
    assert both.attempt == 0


def test_parts_do_not_run_into_one_another() -> None:
    assert counted(0, path="/a", query="b").id != counted(0, path="/a?b", query="").id
    assert counted(0, path="/a", body=b"b").id != counted(0, path="/ab", body=b"").id


def test_nothing_of_the_request_is_in_the_key() -> None:
    serialized = named("my-own-name").SerializeToString()
    assert len(serialized) < 64
    for text in (b"secret", b"my-own-name", b"/v1", b"digest"):
        assert text not in serialized


@pytest.mark.parametrize("value", ["", " ", "a b", "a\tb", "ü", "x" * 256])
def test_a_name_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(DroverError) as refused:
        named(value)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    assert refused.value.message.startswith("Idempotency-Key: ")


def test_a_name_may_be_long_and_of_any_visible_characters() -> None:
    assert named("x" * 255).id != named("x" * 254).id
    assert named('"8e03978e-40d5-43dd-bc93-6894a57f9324"') is not None


def test_two_names_are_refused() -> None:
    with pytest.raises(DroverError, match="twice"):
        key(("Idempotency-Key", "a"), ("Idempotency-Key", "b"))
