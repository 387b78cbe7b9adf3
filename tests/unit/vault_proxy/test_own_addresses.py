"""Drover's own addresses, out of the settings that name them."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import pytest

from services.vault_proxy.domain.addresses import AddressRules, openings
from services.vault_proxy.domain.refusal import Why
from services.vault_proxy.proxy.own import local_addresses, own_addresses

_TARGETS = [
    "127.0.0.1:7001",
    "10.1.0.1:7002,10.1.0.2:7002",
    "dns:///session:7003",
    "ipv4:10.1.0.3:7004",
    "[::1]:7005",
    "unix:/run/drover/proxy",
    "0.0.0.0:7006",
    "",
]
_DATABASES = [
    "postgresql://user:pa%40ss@10.2.0.1:5433/drover",
    "postgresql+asyncpg://user@db.corp/drover",
    "postgresql:///drover?host=/var/run/postgresql",
    "sqlite:////data/session.db",
]


@pytest.mark.parametrize(
    ("address", "port"),
    [
        *(("127.0.0.1", 7001), ("127.0.0.2", 7001), ("::1", 7001), ("192.0.2.7", 7001)),
        *(("10.1.0.1", 7002), ("10.1.0.2", 7002), ("10.9.9.9", 7003), ("10.1.0.3", 7004)),
        *(("127.0.0.1", 7005), ("192.0.2.7", 7006), ("10.2.0.1", 5433), ("10.9.9.9", 5432)),
        ("::ffff:127.0.0.1", 7001),
    ],
)
def test_what_is_drovers_own_is_refused_whatever_is_opened(address: str, port: int) -> None:
    opened = openings(f"127.0.0.0/8:{port},10.0.0.0/8:{port},[::/0]:{port},192.0.2.0/24:{port}")
    here = [ip_address("192.0.2.7")]
    rules = AddressRules(opened, own_addresses(_TARGETS, _DATABASES), here)
    refusal = rules.judge(ip_address(address), port)
    assert refusal is not None
    assert refusal.reason is Why.OWN_ADDRESS


def test_other_ports_of_the_same_machine_stay_open() -> None:
    opened = openings("127.0.0.1/32:9000")
    rules = AddressRules(opened, own_addresses(_TARGETS, _DATABASES))
    assert rules.judge(ip_address("127.0.0.1"), 9000) is None


def test_a_target_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="host:port"):
        own_addresses(["nowhere"])


def test_this_machines_addresses_are_known() -> None:
    assert ip_address("127.0.0.1") in local_addresses()
    assert local_addresses(Path("/nonexistent")) == ()
