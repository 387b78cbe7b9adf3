"""E9: the proxy follows no redirect; what the client asks next is judged as a new request."""

from __future__ import annotations

import pytest

from tests.doubles import egress
from tests.doubles.egress_proxy import World
from tests.doubles.origin import Origin

ALLOWED = "allowed.example"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_the_clients_own_to_follow(
    world: World, secure: Origin, status: int
) -> None:
    held = world.holdings = egress.holdings(egress.credential(value="sk-canary", hosts=[ALLOWED]))
    there = f"https://denied.example:{secure.port}/"
    secure.reply = lambda _: (
        f"HTTP/1.1 {status} Moved\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    sandbox = await world.sandbox()
    assert await sandbox.tunnel(f"{ALLOWED}:{secure.port}") is None
    await sandbox.secure(ALLOWED)
    placeholder = egress.placeholder_of(held).decode()
    head = f"GET / HTTP/1.1\r\nHost: {ALLOWED}:{secure.port}\r\nX-Api-Key: {placeholder}\r\n\r\n"
    answered = await sandbox.ask(head.encode())
    assert (answered.status, answered.fields["location"]) == (status, there)
    assert [asked.field("x-api-key") for asked in secure.asked] == [[b"sk-canary"]]
    follower = await world.sandbox()
    refused = await follower.tunnel(f"denied.example:{secure.port}")
    assert refused is not None
    assert (refused.status, refused.why) == (403, "host_not_allowed")
    assert secure.connections == 1


async def test_a_redirect_to_another_allowed_host_takes_no_credential_along(
    world: World, server: Origin
) -> None:
    held = world.holdings = egress.holdings(egress.credential(value="sk-canary", hosts=[ALLOWED]))
    world.sessions["grant-1"] = egress.session(allowed=[ALLOWED, "other.example"])
    world.open("other.example", port=server.port)
    placeholder = egress.placeholder_of(held).decode()
    sandbox = await world.sandbox()
    at = f"other.example:{server.port}"
    await sandbox.ask(
        f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nX-Api-Key: {placeholder}\r\n\r\n".encode()
    )
    assert [asked.field("x-api-key") for asked in server.asked] == [[placeholder.encode()]]
