"""What has a secret in it leaves under TLS, or to networks of the operator's own."""

from __future__ import annotations

import socket
import ssl
from ipaddress import ip_address

import pytest

from services.vault_proxy.domain.addresses import AddressRules, InClear, openings
from services.vault_proxy.domain.refusal import Why
from services.vault_proxy.outbound import SECRET, Outbound, Timeouts
from services.vault_proxy.proxy.dial import AddressDeniedError

LISTED = "127.0.0.1/32:9000, 10.2.0.0/16, [fd00::/8], 93.184.216.34/32:9000, [64:ff9b::/96]"


class Refusing:
    """A dialler that reaches nobody, and keeps whom it was to reach."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def connect(self, host: str, port: int, *, within: float) -> socket.socket:
        del within
        self.asked.append((host, port))
        raise AddressDeniedError(Why.ADDRESS_NOT_ALLOWED, "closed")


@pytest.mark.parametrize(
    ("address", "port", "goes"),
    [
        ("127.0.0.1", 9000, True),
        ("10.2.3.4", 80, True),
        ("fd00::1", 80, True),
        ("10.3.0.1", 80, False),
        ("127.0.0.1", 80, False),
        ("93.184.216.34", 80, False),
        ("93.184.216.34", 9000, False),  # listed for its port: it is the internet's all the same
        ("64:ff9b::5db8:d822", 80, False),
        ("2606:2800:220:1::1", 80, False),
    ],
)
def test_in_the_clear_secrets_go_to_listed_networks_that_are_not_public(
    address: str, port: int, goes: bool
) -> None:
    rules = InClear(AddressRules(openings(LISTED)))
    assert (rules.judge(ip_address(address), port) is None) is goes


@pytest.mark.parametrize(
    ("url", "secret", "in_clear"),
    [
        ("http://a.example/", True, True),
        ("HTTP://a.example/", True, True),
        ("http://a.example/", False, False),
        ("https://a.example/", True, False),
    ],
)
async def test_secrets_without_tls_have_connections_of_their_own(
    url: str, secret: bool, in_clear: bool
) -> None:
    any_, clear = Refusing(), Refusing()
    outbound = Outbound(any_, ssl.create_default_context(), clear)
    async with outbound.client(timeouts=Timeouts()) as client:
        with pytest.raises(AddressDeniedError):
            await client.get(url, extensions={SECRET: secret})
    assert (len(any_.asked), len(clear.asked)) == ((0, 1) if in_clear else (1, 0))


async def test_who_has_said_nothing_of_secrets_sends_none_in_the_clear() -> None:
    any_ = Refusing()
    async with Outbound(any_, ssl.create_default_context()).client(timeouts=Timeouts()) as client:
        with pytest.raises(AddressDeniedError, match="without TLS"):
            await client.get("http://a.example/", extensions={SECRET: True})
    assert not any_.asked
