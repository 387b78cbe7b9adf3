"""E8: the address is judged after the name was resolved, and that very address is dialled."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tests.doubles.egress_proxy import World, proxied
from tests.doubles.origin import Origin, origin

ALLOWED = "allowed.example"


async def _status(world: World, host: str, port: int) -> tuple[int, str | None]:
    sandbox = await world.sandbox()
    at = f"{host}:{port}"
    answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    return answered.status, answered.why


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "192.168.1.1", "169.254.169.254", "::ffff:10.0.0.1", "100.64.0.1", "fd00::1"],
)
async def test_a_name_that_leads_inside_is_not_dialled(world: World, address: str) -> None:
    world.names[ALLOWED] = [address]
    assert await _status(world, ALLOWED, 80) == (403, "address_not_allowed")
    assert world.dialled == []
    assert world.verdicts == [("denied", "address_not_allowed")]


async def test_a_name_that_leads_elsewhere_the_second_time_is_looked_up_and_judged_once(
    world: World, server: Origin
) -> None:
    """Rebinding: the answer that was judged is the one that is dialled."""
    answers = [["127.0.0.1"], ["169.254.169.254"]]
    world.names = Flipping(answers)
    assert await _status(world, ALLOWED, server.port) == (200, None)
    assert world.dialled == [(ip_address("127.0.0.1"), server.port)]
    assert len(answers) == 1
    sandbox = await world.sandbox()  # another connection, whose server's is not kept any more
    for writer in [*server.writers]:
        writer.transport.abort()
    at = f"{ALLOWED}:{server.port}"
    while True:
        answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
        if answered.status != 502:
            break
    assert (answered.status, answered.why) == (403, "address_not_allowed")


class Flipping(dict[str, list[str]]):
    """Names that lead elsewhere each time they are looked up."""

    def __init__(self, answers: list[list[str]]) -> None:
        super().__init__({ALLOWED: []})
        self._answers = answers

    def __getitem__(self, name: str) -> list[str]:
        return self._answers.pop(0)


async def test_of_several_addresses_only_those_that_are_allowed_are_dialled(
    world: World, server: Origin
) -> None:
    world.names[ALLOWED] = ["10.0.0.1", "169.254.169.254", "127.0.0.1"]
    assert await _status(world, ALLOWED, server.port) == (200, None)
    assert {address for address, _ in world.dialled} == {ip_address("127.0.0.1")}


async def test_an_address_instead_of_a_name_is_judged_the_same() -> None:
    world = World(private="")
    async with origin() as server, proxied(world):
        for host in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"):
            status, why = await _status(world, host, 80)
            assert (status, why) == (403, "address_not_allowed")
        assert server.connections == 0
        assert world.resolved == []


async def test_a_name_that_is_not_there_is_told_apart_from_a_denied_one(world: World) -> None:
    del world.names[ALLOWED]
    assert await _status(world, ALLOWED, 80) == (502, "host_unreachable")
