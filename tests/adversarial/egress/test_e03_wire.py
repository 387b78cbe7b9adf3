"""E3: policy, dialler and log see the one host that the client named, or the request ends there."""

from __future__ import annotations

import pytest

from tests.doubles.egress_proxy import World
from tests.doubles.origin import Origin


@pytest.mark.parametrize(
    "host",
    [
        "allowed.example\x00.evil.example",
        "allowed.example\t",
        "allowed.example.",
        "allowed%2eexample",
        "allowed@evil.example",
        "evil.example#.allowed.example",
        "evil.example\\.allowed.example",
        "[fe80::1%25eth0]",
        "0x7f.1",
        "127.1",
        "2130706433",
        "allow\u0435d.example",
        "xn--.example",
        "",
    ],
)
async def test_a_host_that_two_could_read_differently_is_refused(
    world: World, server: Origin, host: str
) -> None:
    sandbox = await world.sandbox()
    at = f"{host}:{server.port}"
    answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    assert answered.status == 400
    assert answered.why in {"host_malformed", "malformed_request"}
    sandbox = await world.sandbox()
    answered = await sandbox.ask(f"CONNECT {at} HTTP/1.1\r\n\r\n".encode(), method=b"CONNECT")
    assert answered.status == 400
    assert (world.targets, world.resolved, server.asked) == ([], [], [])


async def test_capital_letters_are_the_same_host_for_policy_dialler_and_log(
    world: World, server: Origin
) -> None:
    sandbox = await world.sandbox()
    at = f"ALLOWED.Example:{server.port}"
    answered = await sandbox.ask(f"GET HTTP://{at}/A HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    assert answered.status == 200
    assert [target.host.text for target in world.targets] == ["allowed.example"]
    assert world.resolved == ["allowed.example"]
    assert [(entry.host, entry.path) for entry in world.trail] == [("allowed.example", "/A")]
    assert server.asked[0].field("host") == [f"allowed.example:{server.port}".encode()]
