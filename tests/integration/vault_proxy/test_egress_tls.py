"""Tunnels of the egress proxy: TLS that it ends, and what it does with credentials inside."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from catalogue.hosts import parse_host
from services.vault_proxy.domain.session import SessionAuthority, SessionFacts
from services.vault_proxy.domain.verdict import Answer, GitRoute, Verdict
from services.vault_proxy.proxy.tls import Leaves
from tests.doubles.certificates import Authority
from tests.doubles.egress import credential, holdings, placeholder_of
from tests.doubles.egress_proxy import Sandbox, World, proxied
from tests.doubles.origin import OK, Asked, Origin, origin, read_request

HOST = "api.example.com"
VALUE = "sk-canary-0123456789"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(holdings=holdings(credential(value=VALUE, hosts=[HOST])))
    async with proxied(made):
        yield made


@pytest.fixture
async def server(world: World) -> AsyncIterator[Origin]:
    async with origin(HOST, authority=world.outside) as made:
        world.open(HOST, port=made.port)
        yield made


@pytest.fixture
async def sandbox(world: World, server: Origin) -> Sandbox:
    made = await world.sandbox()
    assert await made.tunnel(f"{HOST}:{server.port}") is None
    await made.secure(HOST)
    return made


def _request(port: int, line: str = "GET /", extra: str = "", body: str = "") -> bytes:
    return f"{line} HTTP/1.1\r\nHost: {HOST}:{port}\r\n{extra}\r\n{body}".encode()


async def test_a_value_goes_to_the_server_and_is_struck_out_of_its_answer(
    sandbox: Sandbox, world: World, server: Origin
) -> None:
    placeholder = placeholder_of(world.holdings).decode()

    def echo(asked: Asked) -> bytes:
        (said,) = asked.field("authorization")
        body = b'{"you sent": "%b"}' % said
        head = b"HTTP/1.1 200 OK\r\nX-Echo: %b\r\nContent-Length: %d\r\n\r\n" % (said, len(body))
        return head + body

    server.reply = echo
    extra = f"Authorization: Bearer {placeholder}\r\nAccept-Encoding: gzip\r\n"
    answered = await sandbox.ask(_request(server.port, "GET /v1", extra))
    assert server.asked[0].field("authorization") == [f"Bearer {VALUE}".encode()]
    assert server.asked[0].field("accept-encoding") == [b"identity"]
    assert answered.body == b'{"you sent": "Bearer %b"}' % (b"*" * len(VALUE))
    assert VALUE not in answered.fields["x-echo"]
    (entry,) = world.trail
    assert (entry.verdict, entry.credential_id, entry.vault_id) == ("allowed", "cred_1", "vlt_1")


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("padding", [0, 2_000_000])
async def test_a_value_in_a_body_is_counted_or_sent_in_chunks(
    sandbox: Sandbox, world: World, server: Origin, chunked: bool, padding: int
) -> None:
    body = f'{{"key": "{placeholder_of(world.holdings).decode()}", "x": "{"y" * padding}"}}'
    framing = f"Content-Length: {len(body)}\r\n"
    sent = body
    if chunked:
        framing, sent = "Transfer-Encoding: chunked\r\n", f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    extra = f"Content-Type: application/json\r\n{framing}"
    server.reply = lambda asked: (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"%x\r\n%b\r\n0\r\n\r\n" % (len(asked.body), asked.body)
    )
    answered = await sandbox.ask(_request(server.port, "POST /", extra, sent), method=b"POST")
    assert server.asked[0].body == f'{{"key": "{VALUE}", "x": "{"y" * padding}"}}'.encode()
    assert answered.body == server.asked[0].body.replace(VALUE.encode(), b"*" * len(VALUE))
    assert {entry.credential_id for entry in world.trail} == {"", "cred_1"}


async def test_an_answer_that_cannot_be_read_does_not_come_through(
    sandbox: Sandbox, world: World, server: Origin
) -> None:
    server.reply = lambda _: (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"
    )
    placeholder = placeholder_of(world.holdings).decode()
    answered = await sandbox.ask(_request(server.port, "GET /", f"X-Api-Key: {placeholder}\r\n"))
    assert (answered.status, answered.why) == (502, "unreadable_answer")


async def test_a_made_up_placeholder_is_refused_and_the_connection_goes_on(
    sandbox: Sandbox, server: Origin
) -> None:
    extra = f"X-Api-Key: drover_placeholder_{'a' * 32}\r\n"
    answered = await sandbox.ask(_request(server.port, "GET /", extra))
    assert (answered.status, answered.why) == (403, "placeholder_unknown")
    assert (await sandbox.ask(_request(server.port))).status == 200
    assert len(server.asked) == 1


async def test_a_websocket_in_tls_has_values_struck_out_even_of_its_last_bytes(
    sandbox: Sandbox, world: World, server: Origin
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await read_request(reader)
        server.asked.append(asked)
        writer.write(b"HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        for piece in (VALUE[:9], VALUE[9:], " and ", VALUE[:3]):
            writer.write(piece.encode())
            await writer.drain()
        await reader.read(1)
        writer.write(b" more")
        await reader.read()

    server.talk = talk
    placeholder = placeholder_of(world.holdings).decode()
    extra = (
        f"Upgrade: websocket\r\nConnection: Upgrade\r\nX-Api-Key: {placeholder}\r\n"
        "Sec-WebSocket-Extensions: permessage-deflate\r\n"
    )
    sandbox.send(_request(server.port, "GET /", extra))
    await sandbox.reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(30):
        seen = await sandbox.reader.readexactly(len(VALUE) + 8)
        sandbox.send(b"x")
        assert await sandbox.reader.readexactly(5) == b" more"
    assert seen == b"*" * len(VALUE) + b" and sk-"
    assert server.asked[0].field("x-api-key") == [VALUE.encode()]
    assert server.asked[0].field("sec-websocket-extensions") == []


async def test_large_bodies_pass_whole_through_tls(sandbox: Sandbox, server: Origin) -> None:
    body = bytes(range(256)) * 20_000
    server.reply = lambda asked: (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(asked.body) + asked.body
    )
    sandbox.send(_request(server.port, "POST /", f"Content-Length: {len(body)}\r\n"))
    answered = await sandbox.ask(body, method=b"POST")
    assert answered.body == body


async def test_a_client_in_tls_that_goes_takes_its_request_along(
    sandbox: Sandbox, server: Origin
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waiting(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)
        begun.set()
        try:
            await reader.read()
        finally:
            ended.set()

    server.talk = waiting
    sandbox.send(_request(server.port))
    async with asyncio.timeout(30):
        await begun.wait()
        sandbox.writer.close()
        await ended.wait()


async def test_a_server_that_speaks_no_tls_is_told_so(world: World) -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with origin() as plain:
        plain.talk = talk
        world.open(HOST, port=plain.port)
        made = await world.sandbox()
        assert await made.tunnel(f"{HOST}:{plain.port}") is None
        await made.secure(HOST)
        answered = await made.ask(_request(plain.port))
        assert (answered.status, answered.why) == (502, "host_unreachable")


async def test_many_tunnels_have_one_certificate(world: World, server: Origin) -> None:
    serials = set()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3) * 2:
        made = await world.sandbox()
        assert await made.tunnel(f"{HOST}:{server.port}") is None
        found = await made.secure(HOST, version=version)
        certificate = found.getpeercert()
        assert certificate is not None
        serials.add(certificate["serialNumber"])
        assert (await made.ask(_request(server.port))).status == 200
    assert len(serials) == 1
    assert server.connections == 1


async def test_a_certificate_is_made_once_and_anew_before_it_ends() -> None:
    made = Authority("Drover session")
    authority = SessionAuthority("sesn_1", made.certificate.encode(), made.key.encode())
    now = datetime.now(UTC)
    leaves = Leaves(lambda: now, kept=2)
    first = leaves.context(authority, parse_host(HOST))
    assert leaves.context(authority, parse_host(HOST)) is first
    now += timedelta(days=1)
    assert leaves.context(authority, parse_host(HOST)) is not first
    assert leaves.minted == 2
    for name in ("a.example", "b.example"):
        leaves.context(authority, parse_host(name))
    leaves.context(authority, parse_host(HOST))
    assert leaves.minted == 5  # it was the one least used


def test_a_session_with_endless_names_drops_nobody_elses_certificates() -> None:
    now = datetime.now(UTC)
    leaves = Leaves(lambda: now, kept=6, kept_by_session=3)
    quiet, loud = (
        SessionAuthority(session, made.certificate.encode(), made.key.encode())
        for session, made in (("sesn_1", Authority("one")), ("sesn_2", Authority("two")))
    )
    first = [leaves.context(quiet, parse_host(name)) for name in ("a.example", "b.example")]
    for number in range(20):
        leaves.context(loud, parse_host(f"{number}.example"))
    again = [leaves.context(quiet, parse_host(name)) for name in ("a.example", "b.example")]
    assert again == first
    assert leaves.minted == 22
    leaves.context(loud, parse_host("19.example"))
    leaves.context(loud, parse_host("17.example"))
    assert leaves.minted == 22  # its share is kept


def test_all_certificates_are_made_for_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Authority("Drover session")
    authority = SessionAuthority("sesn_1", made.certificate.encode(), made.key.encode())
    leaves = Leaves(lambda: datetime.now(UTC))

    def none(*_: object) -> None:
        pytest.fail("a key was made for a certificate")

    monkeypatch.setattr(ec, "generate_private_key", none)
    for name in ("a.example", "b.example"):
        leaves.context(authority, parse_host(name))
    assert leaves.minted == 2


@pytest.mark.parametrize("host", [HOST, "127.0.0.1", "[::1]"])
async def test_a_certificate_holds_before_strict_clients(host: str) -> None:
    made = Authority("Drover session")
    authority = SessionAuthority("sesn_1", made.certificate.encode(), made.key.encode())
    context = Leaves(lambda: datetime.now(UTC)).context(authority, parse_host(host))
    strict = ssl.create_default_context(cadata=made.certificate)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    server_in, client_in = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(server_in, client_in, server_side=True)
    client = strict.wrap_bio(client_in, server_in, server_hostname=host.strip("[]"))
    for _ in range(4):
        for one in (client, server):
            try:
                one.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    leaf = x509.load_der_x509_certificate(shown)
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


class Repository:
    """A session's repository, by rules of the test's own."""

    def __init__(self, upstream: str) -> None:
        self.route = GitRoute("sesrsc_1", upstream)

    def judge(self, facts: SessionFacts, target: object) -> Verdict | None:
        return Verdict(git=self.route)

    async def request(
        self, facts: SessionFacts, route: GitRoute, headers: object
    ) -> list[tuple[bytes, bytes]]:
        return [
            (b"host", b"git.corp"),
            (b"authorization", b"Basic eDp0b2tlbg=="),
        ]

    def answer(self, status: int, headers: object) -> Answer:
        if status == 200:
            return Answer(200, [(b"content-type", b"application/x-git-upload-pack-result")])
        return Answer(403, [], b"refused\n")


async def test_a_request_of_gits_goes_to_its_upstream_with_the_repositorys_token() -> None:
    async with origin() as upstream:
        repository = Repository(f"http://127.0.0.1:{upstream.port}")
        # no private address is opened: the upstream's is the operator's word
        world = World(private="", git_rules=repository, git=repository)
        async with proxied(world):
            made = await world.sandbox()
            assert await made.tunnel(f"{HOST}:443") is None
            await made.secure(HOST)
            request = f"GET /o/r/info/refs?service=x HTTP/1.1\r\nHost: {HOST}\r\nX: y\r\n\r\n"
            answered = await made.ask(request.encode())
            assert (answered.status, answered.body) == (200, b"ok")
            upstream.reply = lambda _: OK.replace(b"200 OK", b"404 No Basic eDp0b2tlbg==")
            answered = await made.ask(request.encode())
            assert (answered.status, answered.body) == (403, b"refused\n")
            assert answered.reason == "Forbidden"
            upgrade = "Upgrade: websocket\r\nConnection: upgrade\r\n\r\n"
            answered = await made.ask(request[:-2].encode() + upgrade.encode())
            assert answered.status == 400
        line = b"GET /o/r/info/refs?service=x HTTP/1.1"
        token = b"authorization: Basic eDp0b2tlbg=="
        expected = [(line, b"host: git.corp", token)] * 2
        assert [asked.lines for asked in upstream.asked] == expected
        assert [entry.kind for entry in world.trail] == ["git"] * 3
