from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc.aio import AioRpcError, Metadata

from chassis.errors import DroverError, Reason
from chassis.grpc.status import DETAILS_KEY, from_rpc_error, to_status


def rpc_error(code: grpc.StatusCode, details: str, *trailers) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(*trailers), details=details)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_survives_the_wire(reason):
    sent = DroverError(reason, "why", retry_after=1.25, session_id="sesn_1")
    status = to_status(sent)
    trailer = (DETAILS_KEY, status.SerializeToString())
    received = from_rpc_error(rpc_error(grpc.StatusCode[sent.rule.grpc], "why", trailer))
    assert (received.reason, received.message) == (reason, "why")
    assert (received.retry_after, received.metadata) == (1.25, {"session_id": "sesn_1"})


def test_message_that_starts_with_a_path_names_the_field():
    status = to_status(DroverError(Reason.INVALID_ARGUMENT, "events.0.content: too: short"))
    bad = error_details_pb2.BadRequest()
    assert any(detail.Unpack(bad) for detail in status.details)
    (violation,) = bad.field_violations
    assert (violation.field, violation.description) == ("events.0.content", "too: short")


@pytest.mark.parametrize(
    "error",
    [
        DroverError(Reason.INVALID_ARGUMENT, "the body is no object"),
        DroverError(Reason.NOT_FOUND, "session: not found"),
    ],
)
def test_other_messages_name_no_field(error):
    bad = error_details_pb2.BadRequest()
    assert not any(detail.Is(bad.DESCRIPTOR) for detail in to_status(error).details)


def test_long_message_is_cut_to_fit_the_trailers():
    assert len(to_status(DroverError(Reason.NOT_FOUND, "x" * 1_000_000)).message) == 2_000


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, Reason.UNAVAILABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Reason.DEADLINE_EXCEEDED),
        (grpc.StatusCode.CANCELLED, Reason.UNAVAILABLE),
        (grpc.StatusCode.UNAUTHENTICATED, Reason.IDENTITY_REFUSED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.REQUEST_TOO_LARGE),
        (grpc.StatusCode.UNKNOWN, Reason.INTERNAL),
        (grpc.StatusCode.INTERNAL, Reason.INTERNAL),
    ],
)
def test_failure_of_grpc_itself_keeps_its_text_for_the_log(code, reason):
    failed = rpc_error(code, "ipv4:10.0.0.7:50051: connection refused")
    error = from_rpc_error(failed)
    assert error.reason is reason
    assert "10.0.0.7" not in error.message
    assert error.__cause__ is failed


def test_details_of_others_and_broken_ones_are_ignored():
    foreign = to_status(DroverError(Reason.NOT_FOUND, "x"))
    foreign.details[0].Pack(error_details_pb2.ErrorInfo(reason="NOT_FOUND", domain="other"))
    for trailer in (foreign.SerializeToString(), b"\xff\xff"):
        error = from_rpc_error(rpc_error(grpc.StatusCode.UNAVAILABLE, "", (DETAILS_KEY, trailer)))
        assert error.reason is Reason.UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (grpc.StatusCode.UNAVAILABLE, "the vault proxy is not available"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "the vault proxy did not answer in time"),
    ],
)
def test_who_knows_whom_it_asked_can_have_it_said(code: grpc.StatusCode, said: str) -> None:
    bare = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())
    assert from_rpc_error(bare, "the vault proxy").message == said
