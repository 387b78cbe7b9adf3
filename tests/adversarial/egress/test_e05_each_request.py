"""E5: each request is decided by itself, whatever was allowed in its connection before."""

from __future__ import annotations

from tests.doubles.egress import session
from tests.doubles.egress_proxy import GRANT, World
from tests.doubles.origin import Origin

ALLOWED = "allowed.example"


def _get(host: str, port: int, *, named: str = "") -> bytes:
    at = f"{host}:{port}"
    return f"GET http://{at}/ HTTP/1.1\r\nHost: {named or at}\r\n\r\n".encode()


async def test_a_kept_connection_gets_a_denied_host_no_further(
    world: World, server: Origin
) -> None:
    sandbox = await world.sandbox()
    for host, status in ((ALLOWED, 200), ("denied.example", 403), (ALLOWED, 200)):
        answered = await sandbox.ask(_get(host, server.port))
        assert answered.status == status
    assert len(server.asked) == 2
    assert world.verdicts == [("allowed", ""), ("denied", "host_not_allowed"), ("allowed", "")]
    assert world.resolved == [ALLOWED]


async def test_pipelined_requests_are_each_decided_in_their_order(
    world: World, server: Origin
) -> None:
    sandbox = await world.sandbox()
    hosts = (ALLOWED, "denied.example", ALLOWED)
    sandbox.send(b"".join(_get(host, server.port) for host in hosts))
    statuses = [(await sandbox.ask(b"")).status for _ in hosts]
    assert statuses == [200, 403, 200]


async def test_a_url_and_host_that_differ_are_denied(world: World, server: Origin) -> None:
    for url, named in (("denied.example", ALLOWED), (ALLOWED, "denied.example")):
        sandbox = await world.sandbox()
        answered = await sandbox.ask(_get(url, server.port, named=f"{named}:{server.port}"))
        assert (answered.status, answered.why) == (403, "host_mismatch")
    assert server.asked == []


async def test_an_allowed_host_again_in_one_connection_does_not_excuse_another_host_field(
    world: World, server: Origin
) -> None:
    sandbox = await world.sandbox()
    assert (await sandbox.ask(_get(ALLOWED, server.port))).status == 200
    answered = await sandbox.ask(_get(ALLOWED, server.port, named="denied.example"))
    assert (answered.status, answered.why) == (403, "host_mismatch")


async def test_a_tunnel_inside_a_tunnel_is_refused(world: World, secure: Origin) -> None:
    at = f"{ALLOWED}:{secure.port}"
    sandbox = await world.sandbox()
    assert await sandbox.tunnel(at) is None
    await sandbox.secure(ALLOWED)
    answered = await sandbox.ask(
        b"CONNECT denied.example:443 HTTP/1.1\r\nHost: denied.example:443\r\n\r\n",
        method=b"CONNECT",
    )
    assert (answered.status, answered.why) == (400, "malformed_request")


async def test_a_whole_url_inside_a_tunnel_is_refused(world: World, secure: Origin) -> None:
    at = f"{ALLOWED}:{secure.port}"
    sandbox = await world.sandbox()
    assert await sandbox.tunnel(at) is None
    await sandbox.secure(ALLOWED)
    answered = await sandbox.ask(
        f"GET https://denied.example/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode()
    )
    assert (answered.status, answered.why) == (400, "malformed_request")


async def test_requests_in_an_open_tunnel_are_judged_by_the_rules_of_now(
    world: World, secure: Origin
) -> None:
    at = f"{ALLOWED}:{secure.port}"
    request = f"GET / HTTP/1.1\r\nHost: {at}\r\n\r\n".encode()
    sandbox = await world.sandbox()
    assert await sandbox.tunnel(at) is None
    await sandbox.secure(ALLOWED)
    assert (await sandbox.ask(request)).status == 200
    world.sessions[GRANT] = session(allowed=["other.example"])
    answered = await sandbox.ask(request)
    assert (answered.status, answered.why) == (403, "host_not_allowed")
    assert len(secure.asked) == 1
