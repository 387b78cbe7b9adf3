"""Requests through the egress proxy over real sockets: what passes, and how."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from tests.doubles.egress import session
from tests.doubles.egress_proxy import Sandbox, World, proxied
from tests.doubles.origin import OK, Asked, Origin, origin, read_request

HOST = "api.example.com"


@pytest.fixture
async def plain() -> AsyncIterator[Origin]:
    async with origin() as made:
        yield made


@pytest.fixture
async def world(plain: Origin) -> AsyncIterator[World]:
    made = World()
    made.open(HOST, port=plain.port)
    async with proxied(made):
        yield made


@pytest.fixture
async def sandbox(world: World) -> Sandbox:
    return await world.sandbox()


def _request(port: int, line: str = "GET /", extra: str = "", body: str = "") -> bytes:
    method, path = line.split(" ")
    at = f"{HOST}:{port}"
    return f"{method} http://{at}{path} HTTP/1.1\r\nHost: {at}\r\n{extra}\r\n{body}".encode()


async def test_what_is_a_hops_own_is_left_out_and_all_else_passes_in_its_order(
    sandbox: Sandbox, world: World, plain: Origin
) -> None:
    extra = (
        "X-Own: 1\r\nProxy-Connection: keep-alive\r\nConnection: x-hop\r\nx-HOP: 1\r\n"
        "TE: trailers\r\nProxy-Authorization: Basic eDp5\r\nKeep-Alive: max=5\r\nx-own: \t2 \r\n"
    )
    plain.reply = lambda _: (
        b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nX-Twice: 1\r\nX-Twice: 2\r\n"
        b"x-drover-egress: denied; reason=made_up\r\nProxy-Authenticate: Basic\r\n\r\nok"
    )
    answered = await sandbox.ask(_request(plain.port, "GET /v1/x?q=1", extra))
    assert (answered.status, answered.reason, answered.body) == (200, "Fine", b"ok")
    assert not {"x-drover-egress", "proxy-authenticate"} & answered.fields.keys()
    (asked,) = plain.asked
    at = f"{HOST}:{plain.port}".encode()
    assert asked.lines == (b"GET /v1/x?q=1 HTTP/1.1", b"Host: " + at, b"X-Own: 1", b"x-own: 2")
    assert world.verdicts == [("allowed", "")]
    (entry,) = world.trail
    assert (entry.method, entry.host, entry.port, entry.path) == ("GET", HOST, plain.port, "/v1/x")
    assert (entry.session_id, entry.hand_id, entry.workspace_id) == ("sesn_1", "hand_1", "wrkspc_1")


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("", "/"),
        ("?", "/?"),
        ("?q=/a", "/?q=/a"),
        ("/a//b/../c?x", "/a//b/../c?x"),
        ("/%2e", "/%2e"),
    ],
)
async def test_a_url_reaches_the_server_as_it_was_written(
    sandbox: Sandbox, plain: Origin, url: str, form: str
) -> None:
    for _ in range(2):  # the second time its host is known
        await sandbox.ask(_request(plain.port, f"GET {url}" if url else "GET "))
    assert {asked.line for asked in plain.asked} == {f"GET {form} HTTP/1.1".encode()}


async def test_one_connection_to_the_server_serves_one_after_the_other(
    sandbox: Sandbox, world: World, plain: Origin
) -> None:
    for _ in range(5):
        assert (await sandbox.ask(_request(plain.port))).status == 200
    other = await world.sandbox()
    assert (await other.ask(_request(plain.port))).status == 200
    assert plain.connections == 1


async def test_no_connection_to_a_server_serves_two_sessions(world: World, plain: Origin) -> None:
    second = session()
    second.id = "sesn_2"
    world.sessions["grant-2"] = second
    for grant in ("grant-1", "grant-2"):
        sandbox = await world.sandbox(grant)
        assert (await sandbox.ask(_request(plain.port))).status == 200
    assert plain.connections == 2


@pytest.mark.parametrize("size", [0, 1, 1000, 500_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_pass_whole_both_ways(
    sandbox: Sandbox, plain: Origin, size: int, chunked: bool
) -> None:
    body = "0123456789abcdef"[: size or 16] * max(1, size // 16) if size else ""

    def echo(asked: Asked) -> bytes:
        if not chunked:
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (
                len(asked.body),
                asked.body,
            )
        half = len(asked.body) // 2
        parts = [part for part in (asked.body[:half], asked.body[half:]) if part]
        chunks = b"".join(b"%X ; x=y\r\n%b\r\n" % (len(part), part) for part in parts)
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\nX: t\r\n\r\n" % chunks

    plain.reply = echo
    for _ in range(2):
        framing = f"Content-Length: {len(body)}\r\n"
        sent = body
        if chunked:
            framing = "Transfer-Encoding: chunked\r\n"
            sent = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n" if body else "0\r\n\r\n"
        answered = await sandbox.ask(_request(plain.port, "POST /", framing, sent), method=b"POST")
        assert answered.body == body.encode()
    assert [asked.body for asked in plain.asked] == [body.encode()] * 2
    assert plain.connections == 1


async def test_an_answer_without_a_length_ends_with_the_servers_connection(
    sandbox: Sandbox, plain: Origin
) -> None:
    plain.reply = lambda _: b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nall of it"
    for _ in range(2):
        assert (await sandbox.ask(_request(plain.port))).body == b"all of it"
    assert plain.connections == 2


async def test_a_client_of_http_1_0_is_served(world: World, plain: Origin) -> None:
    plain.reply = lambda _: (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    )
    sandbox = await world.sandbox()
    answered = await sandbox.ask(f"GET http://{HOST}:{plain.port}/ HTTP/1.0\r\n\r\n".encode())
    assert answered.body == b"ok"
    assert await sandbox.ended()


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"),
    ],
)
async def test_an_answer_that_has_no_body_keeps_the_connections(
    sandbox: Sandbox, plain: Origin, method: str, answer: bytes
) -> None:
    plain.reply = lambda _: answer
    for _ in range(3):
        answered = await sandbox.ask(_request(plain.port, f"{method} /"), method=method.encode())
        assert answered.body == b""
    assert plain.connections == 1


async def test_who_waits_for_100_continue_is_told_to(sandbox: Sandbox, plain: Origin) -> None:
    sandbox.send(_request(plain.port, "PUT /", "Content-Length: 3\r\nExpect: 100-continue\r\n"))
    assert await sandbox.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await sandbox.ask(b"abc", method=b"PUT")).status == 200
    assert plain.asked[0].body == b"abc"
    assert plain.asked[0].field("expect") == []


async def test_a_denied_request_with_a_body_that_was_not_sent_yet_is_told_so(
    sandbox: Sandbox, world: World, plain: Origin
) -> None:
    world.sessions["grant-1"] = session(allowed=[])
    extra = "Content-Length: 1000000\r\nExpect: 100-continue\r\n"
    answered = await sandbox.ask(_request(plain.port, "PUT /", extra), method=b"PUT")
    assert answered.why == "host_not_allowed"
    assert await sandbox.ended()


async def test_interim_answers_are_not_the_answer(sandbox: Sandbox, plain: Origin) -> None:
    plain.reply = lambda _: b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK
    assert (await sandbox.ask(_request(plain.port))).status == 200


async def test_an_early_answer_ends_an_upload(sandbox: Sandbox, plain: Origin) -> None:
    async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno")
        while await reader.read(1 << 16):
            pass

    plain.talk = refusing
    sandbox.send(_request(plain.port, "POST /", "Content-Length: 1000000\r\n", "some"))
    answered = await sandbox.answer(method=b"POST")
    assert (answered.status, answered.body) == (401, b"no")
    assert await sandbox.ended()


async def test_a_stale_connection_to_the_server_is_replaced(
    sandbox: Sandbox, plain: Origin
) -> None:
    async def one_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await reader.readuntil(b"\r\n\r\n")  # and then it goes, without an answer

    plain.talk = one_each
    for _ in range(3):
        assert (await sandbox.ask(_request(plain.port))).status == 200
    assert plain.connections == 3


async def test_a_request_that_may_have_had_an_effect_is_not_repeated(
    sandbox: Sandbox, plain: Origin
) -> None:
    asked = 0

    async def one_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await read_request(reader)
            asked += 1
            if asked == 2:
                return
            writer.write(OK)

    plain.talk = one_each
    assert (await sandbox.ask(_request(plain.port))).status == 200
    answered = await sandbox.ask(
        _request(plain.port, "POST /", "Content-Length: 1\r\n", "x"), method=b"POST"
    )
    assert (answered.status, answered.why) == (502, "host_broken")
    assert asked == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhe",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n",
    ],
)
async def test_an_answer_that_breaks_off_breaks_off_for_the_client(
    sandbox: Sandbox, plain: Origin, answer: bytes
) -> None:
    plain.reply = lambda _: answer
    with pytest.raises(ConnectionError):
        await sandbox.ask(_request(plain.port))


async def test_a_client_that_goes_takes_its_request_along(sandbox: Sandbox, plain: Origin) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waiting(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)
        begun.set()
        try:
            await reader.read()
        finally:
            ended.set()

    plain.talk = waiting
    sandbox.send(_request(plain.port))
    async with asyncio.timeout(30):
        await begun.wait()
        at_once = struct.pack("ii", 1, 0)
        opened = sandbox.writer.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        sandbox.writer.transport.abort()
        await ended.wait()


async def test_a_client_may_end_its_side_before_it_is_answered(
    sandbox: Sandbox, plain: Origin
) -> None:
    sandbox.send(_request(plain.port))
    sandbox.writer.write_eof()
    assert (await sandbox.answer()).body == b"ok"
    assert await sandbox.ended()


async def test_a_websocket_is_passed_on_both_ways_and_half_closed(
    sandbox: Sandbox, world: World, plain: Origin
) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await read_request(reader)
        plain.asked.append(asked)
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: x\r\n\r\nhello"
        )
        while data := await reader.read(1 << 16):
            writer.write(data)

    plain.talk = echo
    extra = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: k\r\n"
    sandbox.send(_request(plain.port, "GET /chat", extra) + b"early")
    head = await sandbox.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"Upgrade: websocket" in head
    assert await sandbox.reader.readexactly(10) == b"helloearly"
    for number in range(20):
        message = b"%d" % number * 1000
        sandbox.send(message)
        assert await sandbox.reader.readexactly(len(message)) == message
    sandbox.writer.write_eof()
    assert await sandbox.reader.read() == b""
    assert plain.asked[0].field("upgrade") == [b"websocket"]
    assert [target.path for target in world.targets[:1]] == ["/chat"]


async def test_a_tunnel_ends_where_its_session_may_go_there_no_more(
    world: World, plain: Origin
) -> None:
    async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        await reader.read()

    plain.talk = quiet
    sandbox = await world.sandbox()
    sandbox.send(_request(plain.port, "GET /", "Upgrade: websocket\r\nConnection: Upgrade\r\n"))
    await sandbox.reader.readuntil(b"\r\n\r\n")
    world.sessions["grant-1"] = session(allowed=[])
    async with asyncio.timeout(30):
        assert await sandbox.ended()
