"""E7: a message whose end two could see in different places is refused, and its connection ends."""

from __future__ import annotations

import pytest

from tests.doubles.egress_proxy import World
from tests.doubles.origin import Origin

ALLOWED = "allowed.example"
_HIDDEN = "GET http://denied.example/ HTTP/1.1\r\nHost: denied.example\r\n\r\n"


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length:\r\n",
        "Content-Length: \xb2\r\n",
        "Content-Length : 5\r\n",
        " Content-Length: 5\r\n",
        "Content-Length: 5\r\n Transfer-Encoding: chunked\r\n",
        "X: y\r\n\tTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Transfer-Encoding: chunked\n",
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
        "X: y\x00Transfer-Encoding: chunked\r\n",
        "Connection: content-length\r\nContent-Length: 5\r\n",
        "Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n",
    ],
)
async def test_framing_that_can_be_read_in_two_ways_is_refused(
    world: World, server: Origin, framing: str
) -> None:
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    head = f"POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{framing}\r\n"
    answered = await sandbox.ask(f"{head}0\r\n\r\n{_HIDDEN}".encode("latin-1"), method=b"POST")
    assert (answered.status, answered.why) == (400, "malformed_request")
    assert await sandbox.ended()
    assert (server.asked, world.targets) == ([], [])


@pytest.mark.parametrize(
    "body",
    [
        "5;x=y\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello",
        "4\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "\r\nhello\r\n",
        "0\r\nHost: denied.example\r\n\r\n",
        "0\r\n\nX",
    ],
)
async def test_chunks_that_can_be_read_in_two_ways_are_refused(
    world: World, server: Origin, body: str
) -> None:
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    head = f"POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n"
    answered = await sandbox.ask(f"{head}{body}{_HIDDEN}".encode(), method=b"POST")
    assert (answered.status, answered.why) == (400, "malformed_request")
    assert await sandbox.ended()
    assert server.asked == []  # not one whole request came through


async def test_a_body_is_framed_anew_for_the_server(world: World, server: Origin) -> None:
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    head = f"POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: Chunked\r\n\r\n"
    answered = await sandbox.ask(
        f"{head}0000a\r\n0123456789\r\n00\r\n\r\n".encode(), method=b"POST"
    )
    assert answered.status == 200
    assert [asked.body for asked in server.asked] == [b"0123456789"]
    assert server.asked[0].field("transfer-encoding") == [b"chunked"]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n X: y\r\n\r\nok",
        b"HTTP/2 200\r\n\r\n",
        b"ok\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 40,
    ],
)
async def test_an_answer_that_can_be_read_in_two_ways_is_not_passed_on(
    world: World, server: Origin, answer: bytes
) -> None:
    server.reply = lambda _: answer
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    assert (answered.status, answered.why) == (502, "host_broken")


async def test_what_a_server_sends_beyond_its_answer_answers_nothing_else(
    world: World, server: Origin
) -> None:
    more = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    server.reply = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + more
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    for _ in range(3):
        answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
        assert answered.body == b"ok"
    assert server.connections == 3
