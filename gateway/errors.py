"""Failures as the API's error envelope (ENDPOINTS §0, "Errors" and "Retries")."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

import grpc
import orjson
import structlog
from starlette.responses import Response

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chassis.ids import IdSource

JSON = "application/json"

# The one conflict with a status of its own: a worker that is told so leaves its item alone, where
# the official client would repeat a 409.
HEARTBEAT_REFUSED = "heartbeat_precondition_failed"
PRECONDITION = 412

# Conflicts of memories, which are types of errors of their own rather than codes, with what they
# tell of the memory that is in the way.
MEMORY_CONFLICTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "memory_path_conflict_error": ("conflicting_memory_id", "conflicting_path"),
        "memory_precondition_failed_error": (),
    }
)

_SOON = 1.0  # seconds to wait before a retry where nobody says how long
_log = structlog.get_logger("gateway")


def body(error: DroverError, request_id: str) -> bytes:
    """The envelope of an error, as JSON text."""
    kind, code = error.rule.api_type, error.error_code
    if code is None:
        return _envelope(kind, error.message, request_id, {})
    if code in MEMORY_CONFLICTS:
        told = {name: error.metadata.get(name) for name in MEMORY_CONFLICTS[code]}
        return _envelope(code, error.message, request_id, told)
    details: dict[str, object] = {"error_code": code}
    if code == HEARTBEAT_REFUSED and (state := error.metadata.get("current_state")):
        details["current_state"] = orjson.loads(state)
    return _envelope(kind, error.message, request_id, {"details": details})


def response(error: DroverError, request_id: str) -> Response:
    """The answer for an error.

    The official client repeats 409, 429 and 5xx by itself: what would fail again says that it
    should not be, and what may succeed says when.
    """
    headers = {}
    if not error.rule.retryable:
        headers["x-should-retry"] = "false"
    else:
        wait = _SOON if error.retry_after is None else error.retry_after
        headers["retry-after"] = str(math.ceil(wait))
        headers["retry-after-ms"] = str(math.ceil(wait * 1_000))
    status = PRECONDITION if error.error_code == HEARTBEAT_REFUSED else error.rule.http
    return Response(body(error, request_id), status, headers, JSON)


def wrong_verb(verb: str, allowed: tuple[str, ...], request_id: str) -> Response:
    """The answer where the path is right and the verb is not."""
    message = f"{verb} is not allowed here; {', '.join(allowed)} would be."
    content = _envelope("invalid_request_error", message, request_id, {})
    headers = {"allow": ", ".join(allowed), "x-should-retry": "false"}
    return Response(content, 405, headers, JSON)


def explain(error: Exception, ids: IdSource) -> DroverError:
    """The error to show for any failure; what is not meant for callers goes to the log only."""
    if isinstance(error, grpc.RpcError):
        error = from_rpc_error(error)
    if isinstance(error, DroverError):
        unknown = error.reason is Reason.INTERNAL and "error_id" not in error.metadata
        if unknown and isinstance(error.__cause__, grpc.RpcError):
            _log.error("upstream_failed", message=error.message, exc_info=error.__cause__)
        return error
    error_id = ids("err")
    _log.error("request_failed", error_id=error_id, exc_info=error)
    return DroverError(Reason.INTERNAL, f"internal error {error_id}")


def _envelope(kind: str, message: str, request_id: str, more: Mapping[str, object]) -> bytes:
    error = {"type": kind, "message": message, **more}
    return orjson.dumps({"type": "error", "error": error, "request_id": request_id})
