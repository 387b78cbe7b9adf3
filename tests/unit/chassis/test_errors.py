from __future__ import annotations

import subprocess
import sys

import grpc
import pytest

from chassis.errors import RULES, DroverError, Reason

API_TYPES = {  # ENDPOINTS §0
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    499: "api_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def test_every_reason_has_one_rule():
    assert set(RULES) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_rule_names_a_status_of_each_protocol(reason):
    rule = RULES[reason]
    assert rule.grpc in grpc.StatusCode.__members__
    assert rule.api_type == API_TYPES[rule.http]
    assert rule.level in {"debug", "info", "warning", "error"}


def test_conflicts_and_lost_leases_are_never_retried_as_they_stand():
    for reason in (Reason.CONFLICT, Reason.VERSION_MISMATCH, Reason.LEASE_LOST, Reason.LEASE_HELD):
        assert not RULES[reason].retryable


def test_a_missing_internal_identity_is_never_a_401_to_the_client():
    assert RULES[Reason.IDENTITY_REFUSED].http == 500


def test_error_code_comes_from_the_metadata_or_from_the_rule():
    assert DroverError(Reason.NOT_FOUND, "x").error_code is None
    assert DroverError(Reason.ENVIRONMENT_NOT_FOUND, "x").error_code == "environment_not_found"
    given = DroverError(Reason.INVALID_ARGUMENT, "x", error_code="invalid_metadata")
    assert given.error_code == "invalid_metadata"


def test_domain_code_can_raise_errors_without_grpc():
    script = "import sys, chassis.errors, chassis.ids; assert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
