"""V2: a bound host shows no value beside its body either, nor where none could be read."""

from __future__ import annotations

import pytest

from services.vault_proxy.domain.refusal import RefusedError, Why
from services.vault_proxy.proxy import parse
from services.vault_proxy.proxy.ways import PlainWay
from tests.doubles.egress import (
    credential,
    holdings,
    placeholder_of,
    session,
    substitution,
    target,
)
from tests.doubles.egress_proxy import Policy, World, proxied
from tests.doubles.origin import origin

HOST = "api.example.com"
VALUE = "Sk-canary_0123456789"


@pytest.mark.parametrize(
    "answer",
    [
        f"HTTP/1.1 400 No key {VALUE} here\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nX-{VALUE}: 1\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nX-Key: {VALUE}\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 103 {VALUE}\r\nX: {VALUE}\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {VALUE}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x={VALUE}\r\nok\r\n0\r\n\r\n",
    ],
    ids=["phrase", "name of a field", "field", "interim answer", "trailer", "chunk extension"],
)
async def test_no_part_of_an_answer_shows_a_value(answer: str) -> None:
    async with origin() as server:
        server.reply = lambda _: answer.encode()
        world = World(holdings=holdings(credential(value=VALUE, hosts=[HOST])))
        world.open(HOST, port=server.port)
        async with proxied(world):
            sandbox = await world.sandbox()
            at = f"{HOST}:{server.port}"
            sandbox.send(
                f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n".encode()
            )
            seen = await sandbox.reader.read()
    assert seen.startswith(b"HTTP/1.1 ")
    assert VALUE.lower().encode() not in seen.lower()


def test_an_encoded_answer_to_a_body_that_is_still_sent_is_refused() -> None:
    held = holdings(credential(value=VALUE))
    request = substitution(held)
    request.headers([(b"transfer-encoding", b"chunked")])
    body = request.body()
    assert body is not None
    assert body.feed(b"nothing yet, ")
    assert request.used  # what comes next may be the placeholder
    assert VALUE.encode() in body.feed(placeholder_of(held)) + body.finish()
    assert request.used


def test_an_encoded_answer_passes_where_all_was_sent_and_nothing_put_in() -> None:
    request = substitution(holdings(credential(value=VALUE)))
    request.headers([(b"transfer-encoding", b"chunked")])
    body = request.body()
    assert body is not None
    assert body.feed(b"nothing at all") + body.finish() == b"nothing at all"
    assert not request.used


async def test_a_host_that_encodes_its_answer_before_it_has_the_body_is_not_read() -> None:
    world = World(holdings=holdings(credential(value=VALUE)))
    way = PlainWay(Policy(world, session()), target("https://api.example.com/v1", "POST"))
    head = parse.request(
        b"POST /v1 HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    _, body = await way.out(head)
    assert body is not None
    packed = parse.response(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with pytest.raises(RefusedError) as refused:
        way.answer(packed)
    assert refused.value.refusal.reason is Why.UNREADABLE_ANSWER
    body.finish()
    assert way.answer(packed).status == 200
