"""How failures of the Messages API are told apart, by status before a stream and by type inside it.

Pure: knows the API's error types, not the library that met them.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from services.brain.model.port import ModelError, ModelErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MESSAGE_LIMIT = 2_000
_FOREIGN_LIMIT = 200

_KINDS_BY_TYPE: Mapping[str, ModelErrorKind] = MappingProxyType(
    {
        "overloaded_error": ModelErrorKind.OVERLOADED,
        "rate_limit_error": ModelErrorKind.RATE_LIMITED,
        "authentication_error": ModelErrorKind.AUTHENTICATION,
        "permission_error": ModelErrorKind.AUTHENTICATION,
        "billing_error": ModelErrorKind.BILLING,
    }
)

_KINDS_BY_STATUS: Mapping[int, ModelErrorKind] = MappingProxyType(
    {
        401: ModelErrorKind.AUTHENTICATION,
        402: ModelErrorKind.BILLING,
        403: ModelErrorKind.AUTHENTICATION,
        429: ModelErrorKind.RATE_LIMITED,
        529: ModelErrorKind.OVERLOADED,
    }
)

# What servers that speak the Messages API say of a conversation that does not fit.
_OVERFLOW = re.compile(
    r"prompt is too long|exceed(?:s|ed)? (?:the )?(?:maximum )?context|context (?:window|length)",
    re.IGNORECASE,
)

_FINAL_TYPES = frozenset(
    {
        "invalid_request_error",
        "authentication_error",
        "billing_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
    }
)

_BAD_REQUEST = 400
_REQUEST_TIMEOUT = 408
_CONFLICT = 409
_TOO_LARGE = 413
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500


def refused(
    status: int,
    body: object,
    headers: Mapping[str, str],
    *,
    now: Callable[[], float],
    parse_date: Callable[[str], float | None],
) -> ModelError:
    """The error for an answer with an error status; `body` is its decoded JSON or its text.

    The kind follows the status, and the type where the status says nothing. Retryable is what the
    official client retries: 408, 409, 429 and 5xx, unless `x-should-retry` says otherwise.
    `now` gives seconds since the epoch and `parse_date` reads an HTTP date as the same.
    """
    type_, text = _described(body)
    kind = _KINDS_BY_STATUS.get(status) or _KINDS_BY_TYPE.get(type_, ModelErrorKind.REQUEST_FAILED)
    advice = headers.get("x-should-retry")
    retryable = advice == "true" or (
        advice != "false"
        and (
            status in {_REQUEST_TIMEOUT, _CONFLICT, _TOO_MANY_REQUESTS} or status >= _SERVER_ERRORS
        )
    )
    return ModelError(
        kind,
        f"the model's API answered {status}{_detail(type_, text)}",
        status=status,
        retry_after=retry_after(headers, now=now, parse_date=parse_date),
        retryable=retryable,
        overflow=status == _TOO_LARGE or (status == _BAD_REQUEST and _overflows(text)),
    )


def broken_off(body: object) -> ModelError:
    """The error for an `error` event inside a stream that had begun with 200.

    The request had been accepted, so that only the types that blame it are final.
    """
    type_, text = _described(body)
    return ModelError(
        _KINDS_BY_TYPE.get(type_, ModelErrorKind.REQUEST_FAILED),
        f"the model's stream ended in an error{_detail(type_, text)}",
        retryable=type_ not in _FINAL_TYPES,
        overflow=type_ == "request_too_large"
        or (type_ == "invalid_request_error" and _overflows(text)),
    )


def retry_after(
    headers: Mapping[str, str],
    *,
    now: Callable[[], float],
    parse_date: Callable[[str], float | None],
) -> float | None:
    """The wait in seconds that the server asks for, or None; never negative.

    `retry-after-ms` comes first, being more precise; `retry-after` is seconds or an HTTP date
    (RFC 9110 §10.2.3).
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after")
    seconds = _number(given)
    if seconds is not None or given is None:
        return seconds
    at = parse_date(given)
    return None if at is None else max(0.0, at - now())


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _overflows(text: str) -> bool:
    return _OVERFLOW.search(text) is not None


def _described(body: object) -> tuple[str, str]:
    """The error type and message of the API's envelope, or what there is of them."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]  # Google's
    if isinstance(body, dict):
        error: Any = body.get("error")
        if isinstance(error, dict):
            return str(error.get("type") or ""), str(error.get("message") or "")
        return "", str(error or body.get("message") or "")
    return "", str(body or "")


def _detail(type_: str, text: str) -> str:
    short = text.strip()
    if not type_ and len(short) > _FOREIGN_LIMIT:
        # Not the API's envelope: a page of something else, repeated at every retry.
        short = f"{short[:_FOREIGN_LIMIT]}…"
    short = short[:_MESSAGE_LIMIT]
    if type_:
        return f" ({type_}): {short}" if short else f" ({type_})"
    return f": {short}" if short else ""
