from __future__ import annotations

from ipaddress import ip_address

import pytest

from services.vault_proxy.domain.addresses import (
    AddressRules,
    OwnAddress,
    openings,
    own_address,
)
from services.vault_proxy.domain.refusal import Why


def _why(rules: AddressRules, address: str, port: int) -> Why | None:
    refusal = rules.judge(ip_address(address), port)
    return refusal.reason if refusal else None


def test_a_listed_address_is_opened_at_its_port_alone() -> None:
    rules = AddressRules(openings("127.0.0.1/32:9000"))
    assert _why(rules, "127.0.0.1", 9000) is None
    assert _why(rules, "127.0.0.1", 9001) is Why.ADDRESS_NOT_ALLOWED
    assert _why(rules, "127.0.0.1", 80) is Why.ADDRESS_NOT_ALLOWED
    assert _why(rules, "127.0.0.2", 9000) is Why.ADDRESS_NOT_ALLOWED


def test_a_listed_network_without_a_port_is_opened_at_those_of_the_web() -> None:
    rules = AddressRules(openings("10.2.0.0/16,[fd00::/8]"))
    assert _why(rules, "10.2.3.4", 443) is None
    assert _why(rules, "10.2.3.4", 8443) is Why.ADDRESS_NOT_ALLOWED
    assert _why(rules, "10.3.0.1", 443) is Why.ADDRESS_NOT_ALLOWED
    assert _why(rules, "fd00::7", 80) is None


def test_a_public_address_at_another_port_must_be_listed_too() -> None:
    rules = AddressRules(openings("93.184.216.0/24:8443"))
    assert _why(rules, "93.184.216.34", 8443) is None
    assert _why(rules, "93.184.216.34", 22) is Why.PORT_NOT_ALLOWED
    assert rules.port_is_possible(8443)
    assert not rules.port_is_possible(22)


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1:", "127.0.0.1/33", "host:80", "10.0.0.1/8", "[fd00::/8", "[fd00::/8]x"),
        *("fd00::/8:80", "10.0.0.0/8:0", "10.0.0.0/8:70000", "10.0.0.0/8:+80"),
        "::ffff:127.0.0.1/128",
    ],
)
def test_an_entry_that_is_no_network_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"write 127\.0\.0\.1/32:9000"):
        openings(text)


def test_blanks_between_entries_are_no_entries() -> None:
    assert len(openings(" 127.0.0.1/32:9000 , , 10.0.0.0/8 ")) == 2


def test_nothing_opens_where_drover_itself_listens() -> None:
    rules = AddressRules(
        openings("0.0.0.0/0:8080,0.0.0.0/0:5432,[::/0]:8080,127.0.0.0/8:9000"),
        own=[OwnAddress(8080), OwnAddress(5432, ip_address("10.0.0.5"))],
        here=[ip_address("192.168.7.7")],
    )
    for address in ("127.0.0.1", "127.9.9.9", "::", "::1", "192.168.7.7", "::ffff:127.0.0.1"):
        assert _why(rules, address, 8080) is Why.OWN_ADDRESS
    assert _why(rules, "10.0.0.5", 5432) is Why.OWN_ADDRESS
    assert _why(rules, "10.0.0.6", 5432) is None
    assert _why(rules, "192.168.7.8", 8080) is None
    assert _why(rules, "127.0.0.1", 9000) is None


def test_a_part_of_drover_that_is_known_by_name_closes_its_port_wherever_it_may_be() -> None:
    rules = AddressRules(
        openings("10.0.0.0/8:5432,10.0.0.0/8:443,93.184.216.34/32:5432"),
        own=[own_address("database", 5432), own_address("gateway", 443)],
    )
    assert _why(rules, "10.0.0.5", 5432) is Why.OWN_ADDRESS
    assert _why(rules, "93.184.216.34", 5432) is Why.OWN_ADDRESS
    assert _why(rules, "10.0.0.5", 443) is Why.OWN_ADDRESS
    assert _why(rules, "93.184.216.34", 443) is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", OwnAddress(80)),
        ("0.0.0.0", OwnAddress(80)),  # noqa: S104
        ("[::]", OwnAddress(80)),
        ("localhost", OwnAddress(80)),
        ("10.0.0.5", OwnAddress(80, ip_address("10.0.0.5"))),
        ("database", OwnAddress(80, named=True)),
    ],
)
def test_an_address_of_a_setting_stands_for_what_it_listens_at(
    host: str, expected: OwnAddress
) -> None:
    assert own_address(host, 80) == expected


def test_a_refusal_says_what_the_operator_would_write() -> None:
    rules = AddressRules(())
    refusal = rules.judge(ip_address("127.0.0.1"), 9000)
    assert refusal is not None
    assert "127.0.0.1/32:9000 in DROVER_EGRESS_ALLOW_PRIVATE" in refusal.message
    refusal = rules.judge(ip_address("fd00::1"), 80)
    assert refusal is not None
    assert "[fd00::1/128]:80" in refusal.message
    assert openings("[fd00::1/128]:80")
