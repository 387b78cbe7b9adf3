"""Who gets through to whom, over real connections: the table itself has a test of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from chassis.errors import CannotStartError
from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.brain.v1 import brain_service_pb2 as pb
from drover.brain.v1.brain_service_pb2_grpc import (
    BrainServiceServicer,
    BrainServiceStub,
    add_BrainServiceServicer_to_server,
)
from identity.authority import Authority, place
from identity.names import name_of
from identity.peers import Peers
from identity.settings import PeerSettings
from tests.unit.identity.conftest import NOW

SECONDS = 30


class Brain(BrainServiceServicer):
    async def Wake(self, request: Any, context: Any) -> pb.WakeResponse:
        return pb.WakeResponse()


def settings(folder: Path, tls_dir: Path | None, **more: Any) -> PeerSettings:
    token = folder / "token"
    token.write_text("secret")
    return PeerSettings(token_file=token, tls_dir=tls_dir, **more)


@pytest.fixture
def peers(certificates: Path, tmp_path: Path):
    """What the process of that name shows."""

    def of(caller: str, shown: Path | None = None) -> Peers:
        return Peers.of(settings(tmp_path, shown or certificates / caller), caller)

    return of


@pytest.fixture
async def brain(peers: Any, tmp_path: Path) -> AsyncIterator[GrpcServer]:
    server = peers("brain").server(settings(tmp_path, None))
    server.add(add_BrainServiceServicer_to_server, Brain())
    await server.start()
    yield server
    await server.stop(0)


async def woken(
    peers: Peers, address: str, callee: str = "brain"
) -> tuple[grpc.StatusCode, str | None]:
    async with peers.channel(address, callee) as channel:
        try:
            await BrainServiceStub(channel).Wake(pb.WakeRequest(session_id="s"), timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, None


def every_way(address: str) -> tuple[str, ...]:
    port = address.rpartition(":")[2]
    return address, f"{address},127.0.0.1:1", f"dns:///localhost:{port}", f"localhost:{port}"


async def test_caller_that_the_table_has_gets_through_whatever_the_address_is(peers, brain):
    for address in every_way(brain.address):
        assert await woken(peers("session"), address) == (grpc.StatusCode.OK, None)


async def test_caller_that_the_table_has_not_is_told_who_may_not_call_what(peers, brain):
    assert await woken(peers("gateway"), brain.address) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "gateway may not call drover.brain.v1.BrainService/Wake",
    )


@pytest.fixture(
    params=[
        [x509.UniformResourceIdentifier(name_of("session"))],
        [x509.RFC822Name(name_of("session"))],
        [x509.DNSName(name_of("session")), x509.DNSName(name_of("brain"))],
        [x509.DNSName(name_of("session")), x509.IPAddress(ip_address("127.0.0.1"))],
        [x509.DNSName("*.drover.internal")],
        [x509.DNSName("session.drover.internal.example")],
    ]
)
def odd(
    request: pytest.FixtureRequest, authority: Authority, tmp_path: Path, monkeypatch: Any
) -> Path:
    """A certificate of the authority's that has other names than a caller's one."""
    names = x509.SubjectAlternativeName(request.param)
    with monkeypatch.context() as making:
        making.setattr("identity.authority.x509.SubjectAlternativeName", lambda _own: names)
        place(tmp_path / "odd", authority.pem, authority.issue("session", NOW))
    return tmp_path / "odd"


async def test_caller_whose_certificate_says_more_or_something_else_is_a_stranger(
    peers, brain, odd
):
    with pytest.raises(CannotStartError, match=r"this process is session\.drover\.internal"):
        peers("session", odd)
    files = {"chain": "tls.crt", "key": "tls.key"}
    shown = {part: (odd / name).read_bytes() for part, name in files.items()}
    own = peers("session")
    assert await woken(Peers(own.token, replace(own.tls, **shown)), brain.address) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "a stranger may not call drover.brain.v1.BrainService/Wake",
    )


async def test_service_is_never_taken_for_another(peers, brain):
    for address in every_way(brain.address):
        code, _ = await woken(peers("session"), address, "registry")
        assert code is grpc.StatusCode.UNAVAILABLE


async def test_certificate_does_not_stand_for_the_secret(peers, brain):
    stranger = Peers(Secret("another"), peers("session").tls)
    code, _ = await woken(stranger, brain.address)
    assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_secret_does_not_stand_for_a_certificate(peers, brain, tmp_path):
    other = Authority.make(NOW)
    place(tmp_path / "other", other.pem, other.issue("session", NOW))
    forged = peers("session", tmp_path / "other")
    assert forged.tls is not None
    clear = Peers(forged.token)
    for shown in (forged, clear):
        code, _ = await woken(shown, brain.address)
        assert code is grpc.StatusCode.UNAVAILABLE


async def test_health_is_for_every_certificate_and_so_is_reflection(peers, brain):
    for caller in ("hands", "gateway", "operator"):
        async with peers(caller).channel(brain.address, "brain") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            ask = channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
            )
            call = ask(iter([b"\x3a\x00"]), timeout=SECONDS)  # list_services
            assert b"drover.brain.v1.BrainService" in await call.read()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "10.0.0.1:7000", "[::]:7000", "session:7000"])
async def test_nothing_is_served_in_clear_beyond_this_machine(tmp_path, listen):
    told = settings(tmp_path, None, listen=listen)
    with pytest.raises(CannotStartError, match=r"DROVER_LISTEN is .*`drover certs create`"):
        Peers.of(told, "session").server(told)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0", "localhost:0", "unix:/run/s.sock"])
async def test_what_stays_on_this_machine_may_be_in_clear(tmp_path, listen):
    told = settings(tmp_path, None, listen=listen)
    Peers.of(told, "session").server(told)


@pytest.mark.parametrize(
    "address", ["10.0.0.1:7000", "127.0.0.1:7000,10.0.0.1:7000", "dns:///session:7000", "session:1"]
)
def test_secret_is_never_sent_in_clear_beyond_this_machine(tmp_path, address):
    with pytest.raises(CannotStartError, match="the address of the session service"):
        Peers.of(settings(tmp_path, None), "brain").channel(address, "session")


def test_end_of_the_certificate_is_told_to_who_scrapes(certificates, tmp_path):
    registry = CollectorRegistry()
    found = Peers.of(settings(tmp_path, certificates / "hands"), "hands", registry)
    assert found.tls is not None
    told = registry.get_sample_value("drover_certificate_expiry_timestamp_seconds")
    assert told == found.tls.expires.timestamp()


def test_certificate_that_ends_soon_is_told_of_at_the_start(authority, tmp_path):
    place(tmp_path / "hands", authority.pem, authority.issue("hands", NOW, days=29))
    with capture_logs() as lines:
        Peers.of(settings(tmp_path, tmp_path / "hands"), "hands")
    [line] = lines
    assert (line["event"], line["log_level"]) == ("certificate_expires_soon", "warning")
    assert "drover certs renew" in line["effect"]
