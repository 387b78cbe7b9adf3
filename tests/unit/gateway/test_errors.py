from __future__ import annotations

import orjson
import pytest

from chassis.errors import RULES, DroverError, Reason
from gateway import errors


def shown(error: DroverError) -> tuple[int, dict[str, str], dict[str, object]]:
    response = errors.response(error, "req_1")
    return response.status_code, dict(response.headers), orjson.loads(response.body)


def test_the_envelope_is_the_contracts() -> None:
    status, _, body = shown(DroverError(Reason.NOT_FOUND, "no such agent"))
    assert status == 404
    assert body == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "no such agent"},
        "request_id": "req_1",
    }


def test_typed_details_select_the_clients_subclass() -> None:
    _, _, body = shown(DroverError(Reason.ARCHIVED, "x", error_code="environment_archived"))
    assert body["error"]["details"] == {"error_code": "environment_archived"}


def test_a_refused_heartbeat_shows_the_lease_as_it_is() -> None:
    status, _, body = shown(
        DroverError(
            Reason.LEASE_LOST,
            "x",
            error_code="heartbeat_precondition_failed",
            current_state='{"state":"queued","ttl_seconds":300}',
        )
    )
    assert status == 412
    assert body["error"]["details"] == {
        "error_code": "heartbeat_precondition_failed",
        "current_state": {"state": "queued", "ttl_seconds": 300},
    }


def test_conflicts_of_memories_are_types_of_their_own() -> None:
    code = "memory_path_conflict_error"
    told = {"conflicting_memory_id": "mem_1", "conflicting_path": "/a"}
    status, headers, body = shown(DroverError(Reason.CONFLICT, "x", error_code=code, **told))
    assert (status, headers["x-should-retry"]) == (409, "false")
    assert body["error"] == {"type": code, "message": "x"} | told
    _, _, body = shown(DroverError(Reason.CONFLICT, "x", error_code=code))
    nothing = dict.fromkeys(told)
    assert body["error"] == {"type": code, "message": "x"} | nothing


@pytest.mark.parametrize("reason", list(Reason))
def test_only_what_may_succeed_later_is_retried_by_the_client(reason: Reason) -> None:
    status, headers, body = shown(DroverError(reason, "x"))
    rule = RULES[reason]
    assert (status, body["error"]["type"]) == (rule.http, rule.api_type)
    assert ("retry-after" in headers) is rule.retryable
    assert (headers.get("x-should-retry") == "false") is not rule.retryable


def test_a_retry_waits_as_long_as_the_service_said() -> None:
    _, headers, _ = shown(DroverError(Reason.RATE_LIMITED, "x", retry_after=2.5))
    assert headers["retry-after"] == "3"
    assert headers["retry-after-ms"] == "2500"


def test_what_was_not_meant_for_callers_is_not_shown() -> None:
    error = errors.explain(RuntimeError("password=hunter2"), lambda prefix: f"{prefix}_7")
    assert error.reason is Reason.INTERNAL
    assert error.message == "internal error err_7"
