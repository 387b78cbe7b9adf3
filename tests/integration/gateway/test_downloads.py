"""Files on their way out: whole and inert, or visibly cut."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import anthropic
import httpx2
import pytest

from chassis.errors import DroverError, Reason
from tests.doubles.platform_files import file
from tests.integration.gateway.conftest import KEY, Gateway

MIB = 1024 * 1024
CONTENT = "/v1/files/file_1/content"


async def begin(
    gateway: Gateway, key: str = KEY
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A download that has begun, of whose content next to nothing is taken."""
    host, port = gateway.url.removeprefix("http://").split(":")
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=small, limit=1024)
    head = f"GET {CONTENT} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\n\r\n"
    writer.write(head.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    return reader, writer


async def test_a_file_comes_whole_and_is_only_ever_saved(gateway: Gateway) -> None:
    files = gateway.platform.files
    page = b"<script>alert(1)</script>" * 9_000
    files.file = file(
        filename='out/Ré"sumé 漢.html', mime_type="text/html", size_bytes=len(page) + 7
    )
    files.content = (page, b"", b"the end")
    answer = await gateway.http.get(CONTENT)
    assert answer.content == page + b"the end"
    assert files.last.file_id == "file_1"
    headers = dict(answer.headers)
    assert headers["content-length"] == str(len(answer.content))
    assert headers["content-type"] == "text/html"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    plain, extended = (
        'filename="R__sum_ _.html"',
        "filename*=UTF-8''R%C3%A9%22sum%C3%A9%20%E6%BC%A2.html",
    )
    assert headers["content-disposition"] == f"attachment; {plain}; {extended}"
    head = await gateway.http.head(CONTENT)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-length", "content-type", "content-disposition"):
        assert head.headers[name] == headers[name]
    files.file.mime_type = "no\r\ntype"
    odd = await gateway.http.head(CONTENT)
    assert odd.headers["content-type"] == "application/octet-stream"


async def test_the_official_client_saves_files_and_skills(gateway: Gateway) -> None:
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=KEY) as client:
        content = await client.beta.files.download("file_1")
        assert await content.read() == b"content"
        archive = await client.beta.skills.versions.download("latest", skill_id="skill_1")
        assert await archive.read() == b"PK\3\4"
    assert gateway.platform.skill_versions.last.version == "latest"
    answer = await gateway.http.get("/v1/skills/skill_1/versions/skver_1/content")
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"].startswith('attachment; filename="sums.zip"')


async def test_what_fails_before_the_first_byte_is_the_envelope(gateway: Gateway) -> None:
    for reason, code, status in (
        (Reason.INVALID_ARGUMENT, "file_not_downloadable", 400),
        (Reason.NOT_FOUND, "file_expired", 404),
    ):
        gateway.platform.files.failure = DroverError(reason, "no", error_code=code)
        answer = await gateway.http.get(CONTENT)
        assert answer.status_code == status
        assert answer.json()["error"]["details"] == {"error_code": code}
    assert (await gateway.http.get(f"{CONTENT}?x=1")).status_code == 400
    await gateway.platform.stop("registry")
    assert (await gateway.http.get(CONTENT)).status_code == 503


@pytest.mark.parametrize(
    ("size", "cut"),
    [(7, DroverError(Reason.UNAVAILABLE, "the store is gone")), (8, None), (6, None)],
)
async def test_what_breaks_midway_does_not_look_whole(
    gateway: Gateway, size: int, cut: Exception | None
) -> None:
    files = gateway.platform.files
    files.file.size_bytes, files.cut = size, cut
    with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
        await gateway.http.get(CONTENT)
    files.file.size_bytes, files.cut = 7, None
    assert (await gateway.http.get(CONTENT)).content == b"content"


class TestReaders:
    @pytest.fixture
    def gateway_settings(self) -> dict[str, Any]:
        return {"stall_seconds": 0.2}

    @pytest.mark.parametrize("does", ["leaves", "waits", "sips"])
    async def test_one_that_takes_next_to_nothing_is_given_up(
        self, gateway: Gateway, does: str
    ) -> None:
        files = gateway.platform.files
        files.content = (bytes(MIB),) * 32
        files.file.size_bytes = 32 * MIB
        reader, writer = await begin(gateway)
        if does == "leaves":
            writer.close()
        if does == "sips":
            # It may see the end before the registry does.
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while not files.broken:
                    await reader.readexactly(100)
                    with suppress(TimeoutError):
                        await files.until(lambda: files.broken == 1, 0.02)
        await files.until(lambda: files.broken == 1)
        writer.close()

    async def test_one_that_waits_has_next_to_nothing_held_for_it(self, gateway: Gateway) -> None:
        files = gateway.platform.files
        files.content = (bytes(MIB // 4),) * 128
        files.file.size_bytes = 32 * MIB
        _, writer = await begin(gateway)
        await files.until(lambda: files.broken == 1)
        assert files.sent <= 6 * MIB  # some 4 of it may be in the system
        writer.close()


class TestAtOnce:
    @pytest.fixture
    def gateway_settings(self) -> dict[str, Any]:
        return {"max_downloads": 1}

    async def test_more_than_there_is_room_for_are_told_to_come_again(
        self, gateway: Gateway
    ) -> None:
        files = gateway.platform.files
        files.content, files.file.size_bytes = (bytes(MIB),) * 32, 32 * MIB
        _, writer = await begin(gateway)
        crowded = await gateway.http.get(CONTENT)
        assert crowded.status_code == 529
        assert crowded.headers["retry-after"] == "1"
        writer.close()
        await files.until(lambda: files.broken == 1)
        files.content, files.file.size_bytes = (b"x",), 1
        async with asyncio.timeout(30):
            while (again := await gateway.http.get(CONTENT)).status_code == 529:
                pass
        assert again.content == b"x"
        for failure in range(3):
            files.failure = DroverError(Reason.NOT_FOUND, f"no {failure}")
            assert (await gateway.http.get(CONTENT)).status_code == 404


async def test_a_description_tells_forms_and_files_from_json(gateway: Gateway) -> None:
    paths: Any = (await gateway.http.get("/openapi.json")).json()["paths"]
    binary = {"type": "string", "format": "binary"}
    form = paths["/v1/files"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["file"]
    assert form["properties"]["file"] == binary
    assert form["properties"]["expires_in_seconds"]["minimum"] == 3_600
    form = paths["/v1/skills"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["properties"]["files[]"] == {"type": "array", "items": binary, "minItems": 1}
    assert form["properties"]["display_name"] == {"type": "string", "maxLength": 255}
    for path, kind in (
        ("/v1/files/{file_id}/content", "application/octet-stream"),
        ("/v1/skills/{skill_id}/versions/{version}/content", "application/zip"),
    ):
        answer = paths[path]["get"]["responses"]["200"]
        assert answer["content"] == {kind: {"schema": binary}}
