"""The health check of containers: one question, asked of real servers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from cli import probe
from identity.authority import Authority, place
from identity.credentials import Credentials
from tests.unit.identity.conftest import NOW


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    authority = Authority.make(NOW)
    for caller in ("vault_proxy", "hands"):
        place(tmp_path / caller, authority.pem, authority.issue(caller, NOW))
    return tmp_path


@pytest.fixture
async def server(certificates: Path) -> AsyncIterator[GrpcServer]:
    tls = Credentials.read(certificates / "vault_proxy", "vault_proxy").server()
    server = GrpcServer("127.0.0.1:0", Secret("secret"), tls=tls)
    await server.start()
    yield server
    await server.stop(0)


async def asked(*arguments: Any, seconds: float = 30.0) -> str:
    return await asyncio.to_thread(probe.probe, *arguments, seconds)


async def test_process_is_asked_with_its_own_certificate_and_without_the_secret(
    server, certificates
):
    assert await asked(server.address, certificates / "vault_proxy") == ""
    assert "UNAVAILABLE" in await asked(server.address, certificates / "hands")
    assert "UNAVAILABLE" in await asked(server.address, None)


async def test_process_is_asked_past_the_proxy_for_the_outside_world(
    server, certificates, monkeypatch
):
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await asked(server.address, certificates / "vault_proxy") == ""


async def test_process_that_is_about_to_go_does_not_serve(server, certificates):
    await server.report(serving=False)
    told = await asked(server.address, certificates / "vault_proxy")
    assert told == f"{server.address} does not serve now"


async def test_process_in_clear_is_asked_in_clear():
    server = GrpcServer("127.0.0.1:0", Secret("secret"), reflection=False)
    await server.start()
    assert await asked(server.address, None) == ""
    await server.stop(0)


@pytest.mark.parametrize(("status", "told"), [("200 OK", ""), ("503 No", "answered 503")])
async def test_what_speaks_http_is_asked_over_it(status, told, tmp_path):
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    said = await asked(f"http://127.0.0.1:{port}/readyz", None)
    assert said.endswith(told)
    assert bool(said) is bool(told)
    assert heard[0].startswith(b"GET /readyz HTTP/1.1\r\n")
    server.close()
    server = await asyncio.start_unix_server(answer, tmp_path / "s")
    assert bool(await asked(f"http+unix:{tmp_path}/s:/_ping", None)) is bool(told)
    assert heard[1].startswith(b"GET /_ping HTTP/1.1\r\n")
    server.close()
    assert "does not answer" in await asked(f"http+unix:{tmp_path}/other:/_ping", None)


async def test_what_cannot_be_asked_is_told(tmp_path):
    assert "does not answer" in await asked("http://127.0.0.1:1/readyz", None)
    assert "cannot be read" in await asked("127.0.0.1:1", tmp_path)
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).write_text("nothing")
    assert "nobody's certificate" in await asked("127.0.0.1:1", tmp_path)


def test_address_is_where_the_process_listens_unless_one_is_named(monkeypatch, tmp_path):
    seen: list[Any] = []
    monkeypatch.setattr(probe, "probe", lambda *given: seen.append(given) or "")
    monkeypatch.delenv("DROVER_TLS_DIR", raising=False)
    monkeypatch.delenv("DROVER_LISTEN", raising=False)
    assert "DROVER_LISTEN" in probe.asked([])
    monkeypatch.setenv("DROVER_LISTEN", "0.0.0.0:7000")
    monkeypatch.setenv("DROVER_TLS_DIR", str(tmp_path))
    probe.asked([])
    probe.asked(["http://127.0.0.1:8080/readyz"])
    assert seen == [("127.0.0.1:7000", tmp_path), ("http://127.0.0.1:8080/readyz", tmp_path)]


def test_it_imports_next_to_nothing():
    """It runs every few seconds beside every process."""
    code = (
        "import sys, cli.probe; "
        "assert not {'grpc', 'cryptography', 'pydantic', 'typer', 'asyncio'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
