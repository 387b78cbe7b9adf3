"""Requests through the egress proxy over real sockets: what passes, and how."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.doubles.egress_proxy import World, proxied
from tests.doubles.origin import Origin, origin


@pytest.fixture
async def plain() -> AsyncIterator[Origin]:
    async with origin() as made:
        yield made


@pytest.fixture
async def world(plain: Origin) -> AsyncIterator[World]:
    made = World()
    made.open("api.example.com", port=plain.port)
    async with proxied(made):
        yield made


async def test_a_request_is_passed_on_and_its_answer_back(world: World, plain: Origin) -> None:
    sandbox = await world.sandbox()
    at = f"api.example.com:{plain.port}"
    answered = await sandbox.ask(
        f"GET http://{at}/v1/x?q=1 HTTP/1.1\r\nHost: {at}\r\nX-Own: 1\r\n"
        "Proxy-Connection: keep-alive\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n".encode()
    )
    assert (answered.status, answered.body) == (200, b"ok")
    (asked,) = plain.asked
    assert asked.lines == (
        b"GET /v1/x?q=1 HTTP/1.1",
        f"Host: {at}".encode(),
        b"X-Own: 1",
    )
    assert world.verdicts == [("allowed", "")]


async def test_tls(world: World) -> None:
    async with origin("api.example.com", authority=world.outside) as secure:
        world.open("api.example.com", port=secure.port)
        sandbox = await world.sandbox()
        at = f"api.example.com:{secure.port}"
        assert await sandbox.tunnel(at) is None
        await sandbox.secure("api.example.com")
        for _ in range(3):
            answered = await sandbox.ask(f"GET / HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
            assert (answered.status, answered.body) == (200, b"ok")
        assert secure.connections == 1
        assert secure.names == ["api.example.com"]
