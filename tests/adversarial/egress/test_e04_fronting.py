"""E4: what a tunnel is opened to, what TLS asks for and what `Host` says are one host, or 403."""

from __future__ import annotations

import ssl

import pytest

from tests.doubles.egress_proxy import Sandbox, World, proxied
from tests.doubles.origin import Origin, origin

ALLOWED = "allowed.example"


@pytest.mark.parametrize("name", ["denied.example", "other.example", None])
async def test_another_server_name_than_the_tunnels_is_denied(
    world: World, secure: Origin, name: str | None
) -> None:
    sandbox = await world.sandbox()
    assert await sandbox.tunnel(f"{ALLOWED}:{secure.port}") is None
    await sandbox.secure(name, checked=False)
    answered = await sandbox.answer()
    assert (answered.status, answered.why) == (403, "sni_mismatch")
    assert await sandbox.ended()
    assert secure.connections == 0
    assert world.verdicts == [("denied", "sni_mismatch")]


async def test_another_host_inside_the_tunnel_is_denied(world: World, secure: Origin) -> None:
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{secure.port}"
    assert await sandbox.tunnel(at) is None
    await sandbox.secure(ALLOWED)
    answered = await sandbox.ask(b"GET / HTTP/1.1\r\nHost: denied.example\r\n\r\n")
    assert (answered.status, answered.why) == (403, "host_mismatch")
    answered = await sandbox.ask(f"GET / HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    assert answered.status == 200
    assert [asked.field("host") for asked in secure.asked] == [[at.encode()]]


async def test_host_beside_a_connect_names_the_same_host(world: World, secure: Origin) -> None:
    sandbox = await world.sandbox()
    connect = f"CONNECT {ALLOWED}:{secure.port} HTTP/1.1\r\nHost: denied.example\r\n\r\n"
    answered = await sandbox.ask(connect.encode(), method=b"CONNECT")
    assert (answered.status, answered.why) == (403, "host_mismatch")


async def test_the_server_is_asked_for_the_tunnels_host_whatever_the_client_says(
    world: World, secure: Origin
) -> None:
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{secure.port}"
    assert await sandbox.tunnel(at) is None
    await sandbox.secure(ALLOWED)
    assert (await sandbox.ask(f"GET / HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())).status == 200
    assert secure.names == [ALLOWED]


async def test_a_server_that_cannot_show_the_hosts_certificate_gets_nothing(world: World) -> None:
    async with origin("another.example", authority=world.outside) as other:
        world.open(port=other.port)
        sandbox = await world.sandbox()
        at = f"{ALLOWED}:{other.port}"
        assert await sandbox.tunnel(at) is None
        await sandbox.secure(ALLOWED)
        answered = await sandbox.ask(f"GET / HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
        assert (answered.status, answered.why) == (502, "host_untrusted")
        assert other.asked == []


async def _opaque(world: World, port: int) -> Sandbox:
    sandbox = await world.sandbox()
    assert await sandbox.tunnel(f"{ALLOWED}:{port}") is None
    return sandbox


async def test_an_opaque_tunnel_is_passed_on_for_its_own_server_name_alone() -> None:
    world = World(opaque=[ALLOWED])
    async with origin(ALLOWED, authority=world.outside) as server, proxied(world):
        world.open(ALLOWED, port=server.port)
        for name in ("denied.example", None):
            sandbox = await _opaque(world, server.port)
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await sandbox.secure(name, checked=False)
        assert server.connections == 0
        assert world.verdicts == [("denied", "sni_mismatch")] * 2
        sandbox = await _opaque(world, server.port)
        await sandbox.secure(ALLOWED, authority=world.outside)  # it is the server itself
        answered = await sandbox.ask(b"GET / HTTP/1.1\r\nHost: anything.example\r\n\r\n")
        assert answered.body == b"ok"
        assert world.verdicts[2:] == [("allowed", "")]
