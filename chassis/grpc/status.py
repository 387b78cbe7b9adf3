"""`DroverError` on the wire: `google.rpc.Status` with `ErrorInfo`, `RetryInfo` and `BadRequest`."""

from __future__ import annotations

import re
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from chassis.errors import DroverError, Reason

DOMAIN: Final = "drover"
DETAILS_KEY: Final = "grpc-status-details-bin"

# The message travels twice in the trailers (options.MAX_METADATA_BYTES), once percent-encoded.
_MAX_MESSAGE: Final = 2_000
_PATH: Final = re.compile(r"([\w.\[\]-]+): ")

# A status without ErrorInfo comes from gRPC itself: no service of ours had its say.
_BARE: Final = {
    "UNAUTHENTICATED": (Reason.IDENTITY_REFUSED, "the installation's secret was refused"),
    "RESOURCE_EXHAUSTED": (Reason.REQUEST_TOO_LARGE, "a message is over the size limit"),
    "UNAVAILABLE": (Reason.UNAVAILABLE, "{} is not available"),
    "DEADLINE_EXCEEDED": (Reason.DEADLINE_EXCEEDED, "{} did not answer in time"),
    "CANCELLED": (Reason.UNAVAILABLE, "{} ended the call"),  # it stops: we have not cancelled
    "UNIMPLEMENTED": (Reason.UNIMPLEMENTED, "the service does not offer this method"),
    "NOT_FOUND": (Reason.NOT_FOUND, "not found"),
}


def to_status(error: DroverError) -> status_pb2.Status:
    """The status to send for an error.

    A message that starts with a path (`events.0.content: …`) names the field in a `BadRequest`.
    """
    message = error.message[:_MAX_MESSAGE]
    status = status_pb2.Status(code=grpc.StatusCode[error.rule.grpc].value[0], message=message)
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)
    )
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(round(error.retry_after * 1e9))
        status.details.add().Pack(retry)
    if error.rule.grpc == "INVALID_ARGUMENT" and (path := _PATH.match(message)):
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=path[1], description=message[path.end() :])
        status.details.add().Pack(bad)
    return status


def from_rpc_error(error: grpc.RpcError, callee: str = "a service") -> DroverError:
    """The error behind a failed call: what the callee raised, or what gRPC reports.

    gRPC's own text names addresses and the like, so it stays in `__cause__`, for the log.
    """
    known = _carried(error)
    if known is None:
        name = error.code().name
        reason, message = _BARE.get(name, (Reason.INTERNAL, f"a call failed with {name}"))
        known = DroverError(reason, message.format(callee))
    known.__cause__ = error
    return known


def _carried(error: grpc.RpcError) -> DroverError | None:
    """The error in a failed call's details; `None` without an `ErrorInfo` known to this release."""
    trailers: Any = error.trailing_metadata() or ()
    try:
        status = status_pb2.Status.FromString(dict(trailers).get(DETAILS_KEY, b""))
    except DecodeError:
        return None
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    after = None
    for detail in status.details:
        detail.Unpack(info)
        if detail.Unpack(retry):
            after = retry.retry_delay.ToNanoseconds() / 1e9
    if info.domain != DOMAIN or info.reason not in Reason.__members__:
        return None
    return DroverError(Reason(info.reason), status.message, retry_after=after, **info.metadata)
