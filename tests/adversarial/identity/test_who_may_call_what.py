"""Every RPC of every process, with every process's certificate: exactly the table is allowed.

What is sent is no message of any method. Whoever may call is told so, and nothing comes of it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from identity.authority import Authority, place
from identity.credentials import AUTHORITIES, Credentials
from identity.names import name_of
from identity.table import TABLE, Caller, may_call
from tests.adversarial.tenancy.asking import process_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.stack import Stack

PROCESSES: Final = ("session", "registry", "vault_proxy", "hands", "brain-1", "brain-2")
HEALTH: Final = "grpc.health.v1.Health"
EVERYWHERE: Final = (
    "drover.about.v1.AboutService",
    HEALTH,
    "grpc.reflection.v1alpha.ServerReflection",
)
NO_MESSAGE: Final = b"\xff"
READ: Final = "the request is no message of the method's type, or a string in it is not UTF-8"
SECONDS: Final = 10.0


def served(process: str) -> list[str]:
    """The services of a process."""
    kind = process.partition("-")[0]
    return [
        service
        for service in TABLE
        if service in EVERYWHERE or process_of(service).partition("-")[0] == kind
    ]


def methods(process: str) -> Iterator[str]:
    """Its methods, but for those that tell whether it is well."""
    for service in served(process):
        if service != HEALTH:
            yield from (f"/{service}/{name}" for name in TABLE[service])


def answer(
    channel: grpc.Channel, method: str, metadata: Any, sent: bytes = NO_MESSAGE
) -> tuple[str, str]:
    """The status with which a call ends, and what is said."""
    try:  # as one message for another: that of a stream fails as well
        channel.unary_unary(method)(sent, metadata=metadata, timeout=SECONDS)
    except grpc.RpcError as error:
        return error.code().name, str(error.details())  # type: ignore[attr-defined]
    return "OK", ""


@pytest.fixture
def secret(stack: Stack) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {stack.token}"),)


@pytest.mark.parametrize("process", PROCESSES)
def test_exactly_what_the_table_says_is_allowed(stack: Stack, secret: Any, process: str) -> None:
    wrong: list[Any] = []
    allowed = 0
    for caller in Caller:
        with stack.channel(process, caller) as channel:
            for method in methods(process):
                wanted = "PERMISSION_DENIED", f"{caller} may not call {method.removeprefix('/')}"
                if may_call(caller, method):
                    wanted, allowed = ("INVALID_ARGUMENT", READ), allowed + 1
                if (told := answer(channel, method, secret)) != wanted:
                    wrong.append((str(caller), method, told))
            assert answer(channel, f"/{HEALTH}/Check", (), b"") == ("OK", "")
    assert wrong == []
    assert allowed >= 3


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_serves_what_the_table_has_for_it_and_nothing_else(
    stack: Stack, secret: Any, process: str
) -> None:
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with stack.channel(process) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        (told,) = stub.ServerReflectionInfo(iter([asked]), metadata=secret, timeout=SECONDS)
    assert {one.name for one in told.list_services_response.service} == {*served(process)}


@pytest.mark.parametrize("process", PROCESSES)
def test_a_certificate_does_not_do_for_the_secret(stack: Stack, process: str) -> None:
    with stack.channel(process) as channel:
        wrong = [
            (method, told)
            for method in methods(process)
            for metadata in ((), (("authorization", "Bearer guessed"),))
            if (told := answer(channel, method, metadata))[0] != "UNAUTHENTICATED"
        ]
    assert wrong == []


def strangers(stack: Stack) -> Iterator[tuple[str, grpc.ChannelCredentials | None]]:
    """Who could be at the other end of a connection, and is nobody of the installation's."""
    known = (stack.data / "run" / "tls" / "operator" / AUTHORITIES).read_bytes()
    now = datetime.now(UTC)
    other = Authority.make(now).issue(Caller.OPERATOR, now)
    yield "in clear", None
    yield "without a certificate", grpc.ssl_channel_credentials(known)
    yield "of another authority", grpc.ssl_channel_credentials(known, other.key, other.certificate)


def connected(address: str, callee: str, shown: grpc.ChannelCredentials | None) -> grpc.Channel:
    if shown is None:
        return grpc.insecure_channel(address)
    named = [("grpc.ssl_target_name_override", name_of(callee))]
    return grpc.secure_channel(address, shown, options=named)


@pytest.mark.parametrize("process", PROCESSES)
def test_strangers_are_not_even_told_whether_a_process_is_well(
    stack: Stack, secret: Any, process: str
) -> None:
    for who, shown in strangers(stack):
        with connected(stack.address(process), process.partition("-")[0], shown) as channel:
            told = answer(channel, f"/{HEALTH}/Check", secret, b"")
            assert told[0] == "UNAVAILABLE", (who, told)


async def test_a_certificate_is_good_for_its_time_and_its_authority(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = Authority.make(now - timedelta(days=9))
    place(tmp_path, authority.pem, authority.issue(Caller.SESSION, now))
    tls = Credentials.read(tmp_path, Caller.SESSION)
    server = GrpcServer("127.0.0.1:0", Secret("s"), tls=tls.server(), reflection=False)
    await server.start()
    try:
        for begun, days, wanted in ((0, 1, "OK"), (8, 3, "UNAVAILABLE"), (-2, 3, "UNAVAILABLE")):
            issued = authority.issue(Caller.BRAIN, now - timedelta(days=begun), days)
            shown = grpc.ssl_channel_credentials(authority.pem, issued.key, issued.certificate)
            with connected(server.address, Caller.SESSION, shown) as channel:
                told = await asyncio.to_thread(answer, channel, f"/{HEALTH}/Check", (), b"")
            assert told[0] == wanted, (begun, days, told)
    finally:
        await server.stop(0)
