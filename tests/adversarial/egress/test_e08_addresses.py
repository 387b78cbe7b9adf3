"""E8: wherever an allowed name leads, no address that is not public is dialled."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.vault_proxy.domain.addresses import AddressRules, OwnAddress, openings
from services.vault_proxy.domain.refusal import Why

_RULES = AddressRules(())


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",  # noqa: S104
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::10.0.0.1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001:0:7f00:1::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "2606:4700::5efe:7f00:1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ],
)
def test_no_address_that_is_not_public_is_dialled(address: str) -> None:
    for port in (80, 443, 9000):
        refusal = _RULES.judge(ip_address(address), port)
        assert refusal is not None
        assert refusal.reason is Why.ADDRESS_NOT_ALLOWED
        assert "DROVER_EGRESS_ALLOW_PRIVATE" in refusal.message


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1"),
        *("192.167.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1"),
        *("64:ff9b::1.1.1.1", "2002:101:101::1"),
    ],
)
def test_public_addresses_are_dialled_at_the_ports_of_the_web(address: str) -> None:
    assert _RULES.judge(ip_address(address), 443) is None
    assert _RULES.judge(ip_address(address), 80) is None
    refusal = _RULES.judge(ip_address(address), 25)
    assert refusal is not None
    assert refusal.reason is Why.PORT_NOT_ALLOWED


@given(st.integers(0, 2**32 - 1))
def test_what_python_holds_for_private_is_never_dialled_however_it_is_wrapped(bits: int) -> None:
    inner = IPv4Address(bits)
    wrapped = [
        IPv6Address(bits | 0xFFFF << 32),
        IPv6Address(int(IPv6Address("64:ff9b::")) | bits),
        IPv6Address(0x2002 << 112 | bits << 80 | 1),
    ]
    if not inner.is_global or inner.is_multicast:
        assert all(_RULES.judge(one, 443) is not None for one in (inner, *wrapped))


@given(st.integers(0, 2**128 - 1))
def test_what_python_holds_for_private_is_never_dialled_over_ipv6(bits: int) -> None:
    address = IPv6Address(bits)
    if not address.is_global or address.is_multicast:
        assert _RULES.judge(address, 443) is not None


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "::", "10.1.1.1"],
)
def test_drovers_own_ports_are_closed_whatever_is_listed(address: str) -> None:
    rules = AddressRules(
        openings("0.0.0.0/0:8080,[::/0]:8080"),
        own=[OwnAddress(8080)],
        here=[ip_address("10.1.1.1")],
    )
    refusal = rules.judge(ip_address(address), 8080)
    assert refusal is not None
    assert refusal.reason is Why.OWN_ADDRESS
