"""A request through the egress proxy, beside one through a bare hop that puts a header in (R8)."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.bare_sandboxes import in_turn
from bench.egress_peers import HOST, VALUE
from bench.report import Report
from bench.statistics import Distribution
from bench.vault_process import TOKEN, running_vault_proxy
from chassis.grpc.channel import open_channel
from chassis.secret import Secret
from drover.vault.v1 import credential_proxy_service_pb2 as pb
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceStub
from drover.vault.v1.vault_credential_service_pb2 import CreateCredentialRequest
from drover.vault.v1.vault_credential_service_pb2_grpc import VaultCredentialServiceStub
from drover.vault.v1.vault_service_pb2 import CreateVaultRequest
from drover.vault.v1.vault_service_pb2_grpc import VaultServiceStub
from tests.doubles.certificates import Authority
from tests.doubles.one_session import OneSession
from tests.doubles.ports import free_port

_BATCH: Final = 20
"""Requests of one turn: the figures are taken in turns, so that a busy moment hits them all."""
_AT_ONCE: Final = 16
_HEADERS: Final = "User-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nX-Trace: 0\r\n"


async def measure(report: Report, *, scale: float) -> None:
    """Latency plain and in TLS, and how much one core does."""
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as name:
        folder, outside, session = Path(name), Authority("Outside"), OneSession()  # type: ignore[abstract]
        (folder / "outside.pem").write_text(outside.certificate)
        (folder / "server.pem").write_text(outside.leaf(HOST))
        egress = f"127.0.0.1:{free_port()}"
        async with AsyncExitStack() as stack:
            plain = await stack.enter_async_context(_peer("plain", folder))
            secure = await stack.enter_async_context(_peer("secure", folder))
            hop = await stack.enter_async_context(_peer("hop", folder, plain))
            process = await stack.enter_async_context(
                running_vault_proxy(
                    folder,
                    session,
                    f"127.0.0.1/32:{plain},127.0.0.1/32:{secure}",
                    DROVER_EGRESS_LISTEN=egress,
                    DROVER_EGRESS_CA_FILE=str(folder / "outside.pem"),
                )
            )
            grant = await _grant(process.address, session)
            proxy = _Proxy(int(egress.rpartition(":")[2]), grant)
            ways = [
                await _through_proxy(proxy, plain),
                await _through_hop(hop),
                await _through_tunnel(proxy, secure),
                await _in_tls(secure, folder / "outside.pem"),
            ]
            await _latency(report, ways, scale)
            for thread in os.listdir(f"/proc/{process.pid}/task"):  # noqa: PTH208
                os.sched_setaffinity(int(thread), {0})
            await _rate(report, proxy, plain, scale)
            for way in ways:
                way.close()


class _Proxy(NamedTuple):
    """The proxy's egress port, and what opens it."""

    port: int
    grant: pb.OpenGrantResponse


async def _grant(address: str, session: OneSession) -> pb.OpenGrantResponse:
    """A grant of a session with a credential for the servers' host."""
    async with open_channel(address, Secret(TOKEN)) as channel:
        made = await VaultServiceStub(channel).CreateVault(CreateVaultRequest(display_name="bench"))
        request = CreateCredentialRequest(vault_id=made.vault.id)
        variable = request.auth.environment_variable
        variable.secret_name, variable.secret_value = "KEY", VALUE
        variable.networking.unrestricted.SetInParent()
        await VaultCredentialServiceStub(channel).CreateCredential(request)
        session.session.vault_ids.append(made.vault.id)
        asked = pb.OpenGrantRequest(session_id="sesn_1", hand_id="bench")
        return await CredentialProxyServiceStub(channel).OpenGrant(asked)


class _Way:
    """A connection, and the bytes of one request in it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._request = request.encode()

    async def ask(self) -> float:
        """Milliseconds of one request."""
        begin = time.perf_counter()
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head)
        await self._reader.readexactly(128)
        return (time.perf_counter() - begin) * 1000

    async def batch(self) -> list[float]:
        """Several, one after the other."""
        return [await self.ask() for _ in range(_BATCH)]

    def close(self) -> None:
        """Closes the connection."""
        self._writer.transport.abort()


async def _latency(report: Report, ways: Sequence[_Way], scale: float) -> None:
    rounds = max(20, int(250 * scale))
    await in_turn(5, *(way.batch for way in ways))  # what is made once is made
    taken = await in_turn(rounds, *(way.batch for way in ways))
    proxied, bare, tunnelled, secure = (
        Distribution(tuple(one for batch in batches for one in batch))  # type: ignore[attr-defined]
        for batches in taken
    )
    report.latency("request through the egress proxy", proxied)
    report.latency("  bare hop that puts a header in", bare)
    ratio = proxied.percentile(0.5) / bare.percentile(0.5)
    report.figure("egress proxy ÷ bare hop (R8)", ratio, "×", "≤ 3")
    report.latency("request through a terminated tunnel", tunnelled)
    report.latency("  the same without any hop, in TLS", secure)


async def _rate(report: Report, proxy: _Proxy, plain: int, scale: float) -> None:
    ways = [await _through_proxy(proxy, plain) for _ in range(_AT_ONCE)]
    seconds, done = max(1.0, 5 * scale), 0

    async def ask(way: _Way, until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            await way.ask()
            count += 1
        return count

    begin = time.perf_counter()
    counts = await asyncio.gather(*(ask(way, begin + seconds) for way in ways))
    done = sum(counts)
    for way in ways:
        way.close()
    report.figure(
        f"requests a second through the proxy on one core, {_AT_ONCE} connections",
        done / seconds,
        "1/s",
        "≥ 2,500 (R8)",
    )


def _request(target: str, port: int, secret: str) -> str:
    authorization = f"Authorization: Bearer {secret}\r\n" if secret else ""
    return f"GET {target} HTTP/1.1\r\nHost: {HOST}:{port}\r\n{_HEADERS}{authorization}\r\n"


async def _through_proxy(proxy: _Proxy, port: int) -> _Way:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(f"DROVER/1 {proxy.grant.grant}\n".encode())
    return _Way(reader, writer, _request(f"http://{HOST}:{port}/v1", port, ""))


async def _through_hop(hop: int) -> _Way:
    reader, writer = await asyncio.open_connection("127.0.0.1", hop)
    return _Way(reader, writer, _request("/v1", hop, ""))


async def _through_tunnel(proxy: _Proxy, port: int) -> _Way:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    connect = f"CONNECT {HOST}:{port} HTTP/1.1\r\n\r\n"
    writer.write(f"DROVER/1 {proxy.grant.grant}\n{connect}".encode())
    await reader.readuntil(b"\r\n\r\n")
    context = ssl.create_default_context(cadata=proxy.grant.ca_certificate)
    await writer.start_tls(context, server_hostname=HOST)
    (variable,) = proxy.grant.variables
    return _Way(reader, writer, _request("/v1", port, variable.placeholder))


async def _in_tls(port: int, authority: Path) -> _Way:
    context = ssl.create_default_context(cafile=str(authority))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=HOST
    )
    return _Way(reader, writer, _request("/v1", port, VALUE))


@asynccontextmanager
async def _peer(role: str, folder: Path, *ports: int) -> AsyncIterator[int]:
    """Runs one of `bench.egress_peers`; gives its port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "bench.egress_peers", role, str(folder), *map(str, ports)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None  # noqa: S101  # a pipe was asked for
        line = await process.stdout.readline()
        if not line:
            msg = f"{role} ended before it listened"
            raise RuntimeError(msg)
        yield int(line)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
