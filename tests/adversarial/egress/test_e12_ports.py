"""E12: hosts are reached at ports 80 and 443; at others only where the operator opened them."""

from __future__ import annotations

import pytest

from tests.doubles.egress import session
from tests.doubles.egress_proxy import GRANT, World, proxied
from tests.doubles.origin import origin

ALLOWED = "allowed.example"


@pytest.mark.parametrize("port", [22, 25, 53, 465, 587, 853, 3306, 5432, 8080, 8443, 65535])
async def test_other_ports_are_denied_before_any_name_is_looked_up(port: int) -> None:
    world = World(sessions={GRANT: session(allowed=[ALLOWED])}, private="127.0.0.1/32:9999")
    world.names[ALLOWED] = ["93.184.216.34"]
    async with proxied(world):
        sandbox = await world.sandbox()
        at = f"{ALLOWED}:{port}"
        answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
        assert (answered.status, answered.why) == (403, "port_not_allowed")
        assert "DROVER_EGRESS_ALLOW_PRIVATE" in answered.error["message"]
        refused = await sandbox.tunnel(at)
        assert refused is not None
        assert (refused.status, refused.why) == (403, "port_not_allowed")
        assert (world.resolved, world.dialled) == ([], [])


async def test_an_opened_port_is_open_at_its_address_alone() -> None:
    world = World(sessions={GRANT: session(allowed=["here.example", "there.example"])}, private="")
    async with origin() as server, proxied(world):
        world.private = f"127.0.0.1/32:{server.port}"
        world.names |= {"here.example": ["127.0.0.1"], "there.example": ["93.184.216.34"]}
        sandbox = await world.sandbox()
        for host, status, why in (
            ("here.example", 200, None),
            ("there.example", 403, "port_not_allowed"),
        ):
            at = f"{host}:{server.port}"
            request = f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"
            answered = await sandbox.ask(request.encode())
            assert (answered.status, answered.why) == (status, why)
        assert {str(address) for address, _ in world.dialled} == {"127.0.0.1"}
