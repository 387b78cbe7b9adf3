"""E6: what is not plain HTTP/1.1 inside TLS is denied, or policed just as that is."""

from __future__ import annotations

import pytest

from tests.doubles.egress_proxy import World
from tests.doubles.origin import Origin

ALLOWED = "allowed.example"
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize("extra", ["", UPGRADE])
async def test_plain_http_and_websockets_to_a_denied_host_are_denied(
    world: World, server: Origin, extra: str
) -> None:
    sandbox = await world.sandbox()
    at = f"denied.example:{server.port}"
    answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{extra}\r\n".encode())
    assert (answered.status, answered.why) == (403, "host_not_allowed")
    assert world.resolved == []


async def test_plain_http_in_a_tunnel_is_policed_as_plain_http(
    world: World, server: Origin
) -> None:
    at = f"{ALLOWED}:{server.port}"
    sandbox = await world.sandbox()
    assert await sandbox.tunnel(at) is None
    answered = await sandbox.ask(f"GET /x HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    assert answered.status == 200
    answered = await sandbox.ask(b"GET /x HTTP/1.1\r\nHost: denied.example\r\n\r\n")
    assert (answered.status, answered.why) == (403, "host_mismatch")
    assert [target.scheme for target in world.targets] == ["https", "http"]


@pytest.mark.parametrize(
    "sent",
    [
        "GET /\r\n",
        "GET http://{at}/\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        (
            "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n"
        ),
        (
            "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket, h2c\r\n\r\n"
        ),
        "GET http://{at}/ HTTP/3\r\nHost: {at}\r\n\r\n",
        "GET ftp://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n",
        "GET https://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {at}\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "EHLO sandbox\r\n",
    ],
)
async def test_another_protocol_is_refused_at_once(world: World, server: Origin, sent: str) -> None:
    sandbox = await world.sandbox()
    answered = await sandbox.ask(sent.format(at=f"{ALLOWED}:{server.port}").encode())
    assert answered.status == 400
    assert await sandbox.ended()
    assert server.connections == 0


async def test_a_server_cannot_switch_to_what_nobody_asked_for(
    world: World, server: Origin
) -> None:
    server.reply = lambda _: b"HTTP/1.1 101 Now\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    at = f"{ALLOWED}:{server.port}"
    for extra in ("", UPGRADE):
        sandbox = await world.sandbox()
        answered = await sandbox.ask(
            f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{extra}\r\n".encode()
        )
        assert (answered.status, answered.why) == (502, "host_broken")
