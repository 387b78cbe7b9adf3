"""What takes long ends with the key that began it, and nothing is done once that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.doubles import platform_workers as workers
from tests.integration.gateway.conftest import KEY, Gateway
from tests.integration.gateway.test_downloads import MIB, begin
from tests.integration.gateway.test_uploads import FILE, form

STORED = "drover_api_stored"
RECHECK = 0.02
BODY = b'{"name": "a", "model": "claude-sonnet-4-5"}'
STOP = "/v1/environments/env_1/work/work_1/stop"
UPLOAD = "content-type: multipart/form-data; boundary=a-boundary\r\n"


@pytest.fixture
def gateway_settings() -> dict[str, Any]:
    return {"key_cache_seconds": 0.0, "recheck_seconds": RECHECK, "stall_seconds": 60.0}


def revoke(gateway: Gateway, key: str) -> None:
    if key == STORED:
        gateway.platform.api_keys.revoke(key)
    elif key == workers.ENVIRONMENT_KEY:
        del gateway.platform.environment_keys.holders[key]


@asynccontextmanager
async def halfway(
    gateway: Gateway, path: str, body: bytes, key: str, more: str = ""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]]:
    """A request that was let in and of whose body the first half was sent; and the other half."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\n{more}"
        "anthropic-beta: managed-agents-2026-04-01\r\nconnection: close\r\n"
        f"expect: 100-continue\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode())
    # It is told to go on as soon as somebody reads its body: after it was let in.
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body[: len(body) // 2])
    async with asyncio.timeout(30):
        yield reader, writer, body[len(body) // 2 :]
    writer.close()


async def pass_time(gateway: Gateway) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() - began < 2 * RECHECK:
        await gateway.http.get("/healthz")


@pytest.mark.parametrize(
    ("key", "path", "body"),
    [(STORED, "/v1/agents", BODY), (workers.ENVIRONMENT_KEY, STOP, b'{"force": true}')],
)
async def test_a_body_that_ends_after_its_key_changes_nothing(
    gateway: Gateway, key: str, path: str, body: bytes
) -> None:
    gateway.platform.api_keys.add(STORED, "write")
    platform = gateway.platform
    asked = len(platform.agents.requests), len(platform.works.requests)
    async with halfway(gateway, path, body, key) as (reader, writer, rest):
        revoke(gateway, key)
        await pass_time(gateway)
        writer.write(rest)
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"authentication_error" in answer
    assert (len(platform.agents.requests), len(platform.works.requests)) == asked


@pytest.mark.parametrize("key", [STORED, KEY])
async def test_a_body_that_comes_slowly_is_taken_of_a_key_that_is_valid(
    gateway: Gateway, key: str
) -> None:
    gateway.platform.api_keys.add(STORED, "write")
    async with halfway(gateway, "/v1/agents", BODY, key) as (reader, writer, rest):
        await pass_time(gateway)
        writer.write(rest)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")


async def test_an_upload_is_broken_off_when_its_key_ends(gateway: Gateway) -> None:
    gateway.platform.api_keys.add(STORED, "write")
    files, body = gateway.platform.files, form(FILE.replace(b"\r\nx\r\n", b"\r\n" + bytes(MIB)))
    async with halfway(gateway, "/v1/files", body, STORED, UPLOAD) as (reader, _, _rest):
        revoke(gateway, STORED)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"was revoked" in answer
        await files.until(lambda: files.broken == 1)
    assert not files.uploads


async def test_a_download_is_cut_when_its_key_ends(gateway: Gateway) -> None:
    gateway.platform.api_keys.add(STORED, "read")
    files = gateway.platform.files
    files.content, files.file.size_bytes = (bytes(MIB),) * 32, 32 * MIB
    reader, writer = await begin(gateway, STORED)
    revoke(gateway, STORED)
    await files.until(lambda: files.broken == 1)
    assert len(await reader.read()) < 32 * MIB
    writer.close()
