from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import pytest

from services.brain.model.failures import broken_off, refused, retry_after
from services.brain.model.port import ModelErrorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.brain.model.port import ModelError

NOW = 1_800_000_000.0


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


def _refused(status: int, type_: str = "", headers: Mapping[str, str] | None = None) -> ModelError:
    body = {"type": "error", "error": {"type": type_, "message": "why"}}
    return refused(status, body, headers or {}, now=lambda: NOW, parse_date=_date)


@pytest.mark.parametrize(
    ("status", "type_", "kind", "retryable"),
    [
        (400, "invalid_request_error", ModelErrorKind.REQUEST_FAILED, False),
        (401, "authentication_error", ModelErrorKind.AUTHENTICATION, False),
        (402, "billing_error", ModelErrorKind.BILLING, False),
        (403, "permission_error", ModelErrorKind.AUTHENTICATION, False),
        (404, "not_found_error", ModelErrorKind.REQUEST_FAILED, False),
        (408, "timeout_error", ModelErrorKind.REQUEST_FAILED, True),
        (409, "conflict_error", ModelErrorKind.REQUEST_FAILED, True),
        (413, "request_too_large", ModelErrorKind.REQUEST_FAILED, False),
        (429, "rate_limit_error", ModelErrorKind.RATE_LIMITED, True),
        (500, "api_error", ModelErrorKind.REQUEST_FAILED, True),
        (503, "overloaded_error", ModelErrorKind.OVERLOADED, True),
        (503, "", ModelErrorKind.REQUEST_FAILED, True),
        (529, "overloaded_error", ModelErrorKind.OVERLOADED, True),
        (400, "billing_error", ModelErrorKind.BILLING, False),
    ],
)
def test_status_and_type_decide_the_kind(
    status: int, type_: str, kind: ModelErrorKind, retryable: bool
) -> None:
    failure = _refused(status, type_)
    assert (failure.kind, failure.retryable, failure.status) == (kind, retryable, status)
    assert "why" in failure.message


def test_googles_errors_are_read_in_a_list_too() -> None:
    body = [{"error": {"code": 429, "message": "quota is used up", "status": "RESOURCE_EXHAUSTED"}}]
    failure = refused(429, body, {}, now=lambda: NOW, parse_date=_date)
    assert (failure.kind, failure.retryable) == (ModelErrorKind.RATE_LIMITED, True)
    assert "quota is used up" in failure.message


def test_the_server_may_overrule_what_is_retried() -> None:
    assert not _refused(529, headers={"x-should-retry": "false"}).retryable
    assert _refused(400, headers={"x-should-retry": "true"}).retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "later"}, None),
    ],
)
def test_the_wait_asked_for_is_read_in_all_its_forms(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers, now=lambda: NOW, parse_date=_date) == seconds


@pytest.mark.parametrize(
    ("type_", "kind", "retryable"),
    [
        ("overloaded_error", ModelErrorKind.OVERLOADED, True),
        ("rate_limit_error", ModelErrorKind.RATE_LIMITED, True),
        ("api_error", ModelErrorKind.REQUEST_FAILED, True),
        ("of_a_later_kind", ModelErrorKind.REQUEST_FAILED, True),
        ("invalid_request_error", ModelErrorKind.REQUEST_FAILED, False),
        ("billing_error", ModelErrorKind.BILLING, False),
    ],
)
def test_an_error_inside_a_stream_is_final_only_if_it_blames_the_request(
    type_: str, kind: ModelErrorKind, retryable: bool
) -> None:
    failure = broken_off({"type": "error", "error": {"type": type_, "message": "why"}})
    assert (failure.kind, failure.retryable, failure.status) == (kind, retryable, None)


@pytest.mark.parametrize("body", [None, "", "<html>", [], {}, {"error": "text"}, {"error": []}])
def test_a_body_that_is_no_envelope_still_gives_an_error(body: object) -> None:
    failure = refused(502, body, {}, now=lambda: NOW, parse_date=_date)
    assert failure.kind is ModelErrorKind.REQUEST_FAILED
    assert "502" in failure.message


def test_a_very_long_message_is_cut() -> None:
    failure = refused(500, "x" * 100_000, {}, now=lambda: NOW, parse_date=_date)
    assert len(failure.message) < 3_000


def test_a_page_that_is_not_the_apis_is_quoted_in_a_line() -> None:
    page = f"<html>{'x' * 5_000}</html>"
    failure = refused(502, page, {}, now=lambda: NOW, parse_date=_date)
    assert "<html>" in failure.message
    assert len(failure.message) < 300


@pytest.mark.parametrize(
    ("status", "message", "overflow"),
    [
        (400, "prompt is too long: 207,110 tokens > 200,000 maximum", True),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000", True),
        (400, "This model's maximum context length is 32768 tokens.", True),
        (413, "Request exceeds the maximum size", True),
        (400, "max_tokens: 64000 > 32000, which is the maximum allowed for this model", False),
        (400, "messages.3.content.0: could not process image", False),
        (500, "prompt is too long", False),
    ],
)
def test_conversation_that_does_not_fit_is_told_apart(
    status: int, message: str, overflow: bool
) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    error = refused(status, body, {}, now=lambda: NOW, parse_date=_date)
    assert error.overflow == overflow
    if status == 400:
        assert broken_off(body).overflow == overflow
