"""The one error type of the system and the one table that says how each reason is answered.

The gRPC interceptor and the HTTP gateway both read `RULES`; nothing else maps errors. Domain code
may raise `DroverError` freely: nothing of grpc or HTTP is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a request failed: stable, machine-readable, sent as `google.rpc.ErrorInfo.reason`."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    ARCHIVED = "ARCHIVED"
    SESSION_RUNNING = "SESSION_RUNNING"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    BILLING = "BILLING"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_FOUND = "NOT_FOUND"
    ENVIRONMENT_NOT_FOUND = "ENVIRONMENT_NOT_FOUND"
    CONFLICT = "CONFLICT"
    VERSION_MISMATCH = "VERSION_MISMATCH"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    LEASE_LOST = "LEASE_LOST"
    LEASE_HELD = "LEASE_HELD"
    INPUT_PENDING = "INPUT_PENDING"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    RATE_LIMITED = "RATE_LIMITED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    IDENTITY_REFUSED = "IDENTITY_REFUSED"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Rule:
    """How one reason is answered and logged.

    `grpc` is the name of a gRPC status code; `http` is a status, `api_type` the `error.type` and
    `error_code` the usual `error.details.error_code` of ENDPOINTS §0; `level` is the answering
    process's log level. `retryable`: the same request may succeed later as it stands.
    """

    grpc: str
    http: int
    api_type: str
    level: str
    retryable: bool = False
    error_code: str | None = None


_INVALID, _OVERLOADED = "invalid_request_error", "overloaded_error"

RULES: Mapping[Reason, Rule] = {
    Reason.INVALID_ARGUMENT: Rule("INVALID_ARGUMENT", 400, _INVALID, "info"),
    Reason.UNKNOWN_FIELD: Rule("INVALID_ARGUMENT", 400, _INVALID, "info"),
    Reason.UNIMPLEMENTED: Rule("UNIMPLEMENTED", 400, _INVALID, "info"),
    Reason.ARCHIVED: Rule("FAILED_PRECONDITION", 400, _INVALID, "info"),
    Reason.SESSION_RUNNING: Rule("FAILED_PRECONDITION", 400, _INVALID, "info"),
    Reason.UNAUTHENTICATED: Rule("UNAUTHENTICATED", 401, "authentication_error", "info"),
    Reason.BILLING: Rule("FAILED_PRECONDITION", 402, "billing_error", "warning"),
    Reason.PERMISSION_DENIED: Rule("PERMISSION_DENIED", 403, "permission_error", "info"),
    Reason.NOT_FOUND: Rule("NOT_FOUND", 404, "not_found_error", "info"),
    Reason.ENVIRONMENT_NOT_FOUND: Rule(
        "NOT_FOUND", 404, "not_found_error", "info", error_code="environment_not_found"
    ),
    Reason.CONFLICT: Rule("ABORTED", 409, "conflict_error", "info"),
    Reason.VERSION_MISMATCH: Rule("ABORTED", 409, "conflict_error", "info"),
    Reason.ALREADY_EXISTS: Rule("ALREADY_EXISTS", 409, "conflict_error", "info"),
    Reason.LEASE_LOST: Rule("FAILED_PRECONDITION", 409, "conflict_error", "info"),
    Reason.LEASE_HELD: Rule("FAILED_PRECONDITION", 409, "conflict_error", "info"),
    Reason.INPUT_PENDING: Rule("FAILED_PRECONDITION", 409, "conflict_error", "debug"),
    Reason.REQUEST_TOO_LARGE: Rule("RESOURCE_EXHAUSTED", 413, "request_too_large", "info"),
    Reason.RATE_LIMITED: Rule("RESOURCE_EXHAUSTED", 429, "rate_limit_error", "info", True),
    Reason.RESOURCE_EXHAUSTED: Rule("RESOURCE_EXHAUSTED", 529, _OVERLOADED, "warning", True),
    Reason.UNAVAILABLE: Rule("UNAVAILABLE", 503, _OVERLOADED, "warning", True),
    Reason.DEADLINE_EXCEEDED: Rule("DEADLINE_EXCEEDED", 504, "timeout_error", "warning", True),
    Reason.CANCELLED: Rule("CANCELLED", 499, "api_error", "debug"),
    # One of Drover's own processes came without the installation's secret: to an HTTP client that
    # is our fault, never a 401 about its key.
    Reason.IDENTITY_REFUSED: Rule("UNAUTHENTICATED", 500, "api_error", "warning"),
    Reason.INTERNAL: Rule("INTERNAL", 500, "api_error", "error"),
}


class DroverError(Exception):
    """A failure that a caller is meant to see.

    `message` is shown to callers as it is: it may name a path (`events.0.content: …`), never a
    secret. `retry_after` is in seconds. `metadata` travels in `ErrorInfo`; its key `error_code`
    becomes `error.details.error_code` of the HTTP envelope.
    """

    def __init__(
        self, reason: Reason, message: str, *, retry_after: float | None = None, **metadata: str
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.metadata = metadata

    @property
    def rule(self) -> Rule:
        """The row of `RULES` for this reason."""
        return RULES[self.reason]

    @property
    def error_code(self) -> str | None:
        """Value of `error.details.error_code`, if this error has one."""
        return self.metadata.get("error_code", self.rule.error_code)

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


WRONG_SETTINGS = 78
"""How a process ends that cannot use its settings (sysexits' EX_CONFIG): no new start will help."""


class CannotStartError(Exception):
    """What keeps a process from starting. The message, one line, says what to do about it."""
