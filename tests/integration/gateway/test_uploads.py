"""Forms with files: what reaches the service, and what does not."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from chassis.errors import DroverError, Reason
from drover.file.v1.file_service_pb2 import FileHeader
from drover.skill.v1.skill_service_pb2 import SkillHeader
from tests.integration.gateway.conftest import KEY, Gateway

BOUNDARY = "a-boundary"
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=gateway.url, api_key=KEY, max_retries=0, _strict_response_validation=True
    ) as made:
        yield made


def part(disposition: str, content: bytes = b"x", headers: str = "") -> bytes:
    head = f"--{BOUNDARY}\r\ncontent-disposition: {disposition}\r\n{headers}\r\n"
    return head.encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def odd(header: str) -> bytes:
    return part("form-data; name=file", headers=f"{header}\r\n")


FILE = part('form-data; name="file"; filename="a.txt"')


def head(path: str, length: int) -> bytes:
    """The beginning of an upload, for a client that does as it likes with the rest."""
    first = f"POST /v1/{path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\n"
    kind = f"content-type: {FORM['content-type']}\r\n"
    return f"{first}{kind}content-length: {length}\r\n\r\n".encode()


async def refused(gateway: Gateway, path: str, body: Any, headers: Any = FORM) -> tuple[int, str]:
    answer = await gateway.http.post(path, content=body, headers=headers)
    error = answer.json()["error"]
    assert answer.headers["x-should-retry"] == "false"
    return answer.status_code, error["message"]


async def test_the_official_clients_uploads_arrive_whole_under_any_name(
    gateway: Gateway, client: anthropic.AsyncAnthropic, tmp_path: Path
) -> None:
    uploads = gateway.platform.files.uploads
    path = tmp_path / "notes.md"
    path.write_bytes(b"from disk")
    large = bytes(range(256)) * 4_000
    for given, name, kind, content in (
        (
            ("Résumé 漢字 🐄.txt", b"some", "text/plain"),
            "Résumé 漢字 🐄.txt",
            "text/plain",
            b"some",
        ),
        (("dir/below/x.csv", b"a,b"), "x.csv", "text/csv", b"a,b"),
        (path, "notes.md", "text/markdown", b"from disk"),
        (b"bare", "unnamed.bin", "application/octet-stream", b"bare"),
        ((None, b"{}", "application/json"), "unnamed.json", "application/json", b"{}"),
        (("empty", b""), "empty", "application/octet-stream", b""),
        (("large.bin", io.BytesIO(large)), "large.bin", "application/octet-stream", large),
    ):
        made = await client.beta.files.upload(file=given)
        header, *pieces, end = uploads[-1]
        assert (header.header.filename, header.header.mime_type) == (name, kind)
        assert b"".join(one.data for one in pieces) == content
        assert end.complete
        assert (made.filename, made.size_bytes) == (name, len(content))
    assert len(uploads[-1]) > 3
    await client.files.upload(file=("x", b"x"), expires_in_seconds=3_600)
    assert uploads[-1][0].header.expires_in_seconds == 3_600


async def test_what_a_form_says_behind_its_file_arrives_behind_it(gateway: Gateway) -> None:
    field = part('form-data; name="expires_in_seconds"', b"3600")
    answer = await gateway.http.post("/v1/files", content=form(FILE, field), headers=FORM)
    assert answer.status_code == 200
    header, _, late, end = gateway.platform.files.uploads[-1]
    assert not header.header.HasField("expires_in_seconds")
    assert late.header == FileHeader(expires_in_seconds=3_600)
    assert end.complete


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        ("filename=\"x\"; filename*=UTF-8''na%C3%AFve%20%E2%82%AC.txt", "naïve €.txt"),
        ("filename*=iso-8859-1'en'%A3.txt", "£.txt"),
        ("filename=bare.txt ;", "bare.txt"),
        ('filename="C:\\Users\\me\\report.txt"', "report.txt"),
        ('filename="a;b=c.txt"', "a;b=c.txt"),
        ('filename="say \\"hi\\".txt"', 'say "hi".txt'),
    ],
)
async def test_names_are_read_as_other_clients_write_them(
    gateway: Gateway, filename: str, name: str
) -> None:
    body = form(part(f'form-data; name="file"; {filename}'))
    assert (await gateway.http.post("/v1/files", content=body, headers=FORM)).status_code == 200
    assert gateway.platform.files.uploads[-1][0].header.filename == name


async def test_what_is_no_form_of_a_file_reaches_no_service_whole(gateway: Gateway) -> None:
    field = part('form-data; name="expires_in_seconds"', b"3600")
    crowd = "".join(f"x-{number}: y\r\n" for number in range(20))
    cases: list[tuple[str, Any, Any]] = [
        ("content-type: must be multipart/form-data", b"{}", {"content-type": "application/json"}),
        ("content-type: must be", form(FILE), {"content-type": "multipart/form-data"}),
        ("content-type: must be", form(FILE), {"content-type": "multipart/mixed; boundary=x"}),
        ("content-encoding: ", form(FILE), {**FORM, "content-encoding": "gzip"}),
        ("Idempotency-Key: is not taken", form(FILE), {**FORM, "idempotency-key": "once"}),
        ("the form is malformed", b"nothing of the kind", FORM),
        ("its first boundary is missing", b"", FORM),
        ("the form is cut off", FILE, FORM),
        ("file: is required", form(), FORM),
        ("file: is required", form(field), FORM),
        ("file: is given twice", form(FILE, FILE), FORM),
        ("other: unknown field", form(part('form-data; name="other"'), FILE), FORM),
        ("other: unknown field", form(FILE, part('form-data; name="other"; filename="y"')), FORM),
        ("expires_in_seconds: is given twice", form(field, FILE, field), FORM),
        (
            "expires_in_seconds: must be an integer",
            form(FILE, part('form-data; name="expires_in_seconds"', b"soon")),
            FORM,
        ),
        (
            "^expires_in_seconds: must be at least 3600",
            form(part('form-data; name="expires_in_seconds"', b"60"), FILE),
            FORM,
        ),
        (
            "^expires_in_seconds: must be at least 3600",
            form(FILE, part('form-data; name="expires_in_seconds"', b"60")),
            FORM,
        ),
        (
            "expires_in_seconds: is too long",
            form(part('form-data; name="expires_in_seconds"', b"1" * 20_000)),
            FORM,
        ),
        ("every part needs a name", form(part("form-data")), FORM),
        ("every part needs a content-disposition", form(part("attachment; name=file")), FORM),
        ("disposition has its name twice", form(part("form-data; name=file; name=x")), FORM),
        ("disposition is malformed", form(part('form-data; name="file')), FORM),
        ("disposition is malformed", form(part("form-data; name=file; filename*=x")), FORM),
        ("Maximum header count exceeded", form(part("form-data; name=file", headers=crowd)), FORM),
        ("Maximum header size exceeded", form(part(f"form-data; name={'n' * 20_000}")), FORM),
        ("file: content-type: is no media type", form(odd("content-type: text")), FORM),
        (
            "file: content-transfer-encoding: ",
            form(odd("content-transfer-encoding: base64")),
            FORM,
        ),
        ("is not UTF-8", form(part("form-data; name=N").replace(b"N", b"\xff")), FORM),
    ]
    for message, body, headers in cases:
        status, told = await refused(gateway, "/v1/files", body, headers)
        assert status == 400, message
        assert told.startswith(message[1:]) if message[0] == "^" else message in told
    assert (await refused(gateway, "/v1/files?x=1", form(FILE)))[1] == "x: unknown query parameter"
    assert gateway.platform.files.uploads == []
    assert gateway.platform.files.began == gateway.platform.files.broken


async def test_a_skills_files_keep_their_paths(
    gateway: Gateway, client: anthropic.AsyncAnthropic
) -> None:
    given: Any = [("sums/SKILL.md", b"# Sums"), ("sums/scripts/über.sh", b""), ("sums/a", b"a")]
    made = await client.beta.skills.create(files=given, display_name="Sums")
    assert made.id == "skill_1"
    header, *files, end = gateway.platform.skills.uploads[-1]
    assert header.header == SkillHeader(display_name="Sums")
    assert [(one.file.path, one.file.data) for one in files] == given
    assert end.complete
    await client.beta.skills.versions.create("skill_7", files=given[:1])
    header, only, end = gateway.platform.skill_versions.uploads[-1]
    assert header.header.skill_id == "skill_7"
    assert only.file.path == "sums/SKILL.md"
    assert end.complete


async def test_a_skill_may_be_named_behind_its_files_and_needs_some(gateway: Gateway) -> None:
    name = part('form-data; name="display_name"', "Zählen".encode())
    file = part('form-data; name="files"; filename="sums/SKILL.md"')
    answer = await gateway.http.post("/v1/skills", content=form(file, name), headers=FORM)
    assert answer.status_code == 200
    first, _, late, _ = gateway.platform.skills.uploads[-1]
    assert (first.header, late.header) == (SkillHeader(), SkillHeader(display_name="Zählen"))
    assert await refused(gateway, "/v1/skills", form(name)) == (400, "files[]: is required")
    path = "/v1/skills/skill_1/versions"
    assert await refused(gateway, path, form(name, file)) == (400, "display_name: unknown field")


async def test_an_upload_that_a_service_refuses_ends_with_its_reason(gateway: Gateway) -> None:
    files = gateway.platform.files
    files.refuse_after = 1
    files.failure = DroverError(
        Reason.INVALID_ARGUMENT, "the quota is used up", error_code="storage_quota_exceeded"
    )
    sent = form(part('form-data; name="file"', b"x" * 3_000_000))
    answer = await gateway.http.post("/v1/files", content=sent, headers=FORM)
    assert answer.status_code == 400
    assert answer.json()["error"]["details"] == {"error_code": "storage_quota_exceeded"}
    await gateway.platform.stop("registry")
    answer = await gateway.http.post("/v1/files", content=form(FILE), headers=FORM)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_a_client_that_goes_away_leaves_nothing(gateway: Gateway) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/files HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\n"
    writer.write(
        f"{head}content-type: {FORM['content-type']}\r\ncontent-length: 999\r\n\r\n".encode()
    )
    writer.write(FILE)
    files = gateway.platform.files
    await files.until(lambda: files.began == 1)
    writer.close()
    await files.until(lambda: files.broken == 1)
    assert files.uploads == []


class TestSizes:
    @pytest.fixture
    def gateway_settings(self) -> dict[str, Any]:
        return dict.fromkeys(("max_file_bytes", "max_skill_bytes", "max_body_bytes"), 1024 * 1024)

    async def test_a_length_over_the_limit_is_refused_before_it_comes(
        self, gateway: Gateway
    ) -> None:
        host, port = gateway.url.removeprefix("http://").split(":")
        for path in ("files", "skills"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(head(path, 8_000_000))
            answer = await reader.readuntil(b"}")
            writer.close()
            await writer.wait_closed()
            assert answer.startswith(b"HTTP/1.1 413 ")

    async def test_a_file_is_refused_once_it_is_over_the_limit_and_kept_at_it(
        self, gateway: Gateway
    ) -> None:
        files = gateway.platform.files
        most = b"x" * 1024 * 1024
        named = 'form-data; name="file"'
        whole = await gateway.http.post("/v1/files", content=form(part(named, most)), headers=FORM)
        assert whole.json()["size_bytes"] == len(most)
        answer = await refused(gateway, "/v1/files", form(part(named, most + b"x")))
        assert answer == (413, "the request body is over 1 MB")
        await files.until(lambda: files.broken == 1)
        assert len(files.uploads) == 1

        async def endless() -> AsyncIterator[bytes]:
            yield form(FILE)
            for _ in range(100):
                yield b"an epilogue" * 10_000

        assert (await refused(gateway, "/v1/files", endless()))[0] == 413

    async def test_a_skill_has_a_limit_of_its_own_and_not_that_of_other_bodies(
        self, gateway: Gateway
    ) -> None:
        named = 'form-data; name="files[]"; filename="sums/a"'
        for size, status in ((3 * 1024 * 1024, 200), (3 * 1024 * 1024 + 1, 413)):
            body = form(part(named, b"x" * size))
            answer = await gateway.http.post("/v1/skills", content=body, headers=FORM)
            assert answer.status_code == status
