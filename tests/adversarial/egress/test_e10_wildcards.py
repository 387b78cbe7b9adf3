"""E10: wildcards compare whole labels, and none covers a registry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.host_list import HostList
from catalogue.hosts import Host, HostError, canonical_host, parse_host

_LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True).filter(
    lambda label: not label.startswith("xn--")
)
_NAME = st.lists(_LABEL, min_size=1, max_size=5).map(".".join)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("a.example.com", True),
        ("a.b.example.com", True),
        ("example.com", False),
        ("badexample.com", False),
        ("a.badexample.com", False),
        ("example.com.evil.org", False),
        ("a.example.com.evil.org", False),
        ("a.example.co", False),
        ("com", False),
    ],
)
def test_a_wildcard_is_every_name_below_its_domain_and_no_other(name: str, listed: bool) -> None:
    assert (parse_host(name) in HostList(["*.example.com"])) is listed


def test_an_exact_entry_is_that_name_alone() -> None:
    hosts = HostList(["example.com"])
    assert Host("example.com") in hosts
    assert Host("a.example.com") not in hosts


def test_no_wildcard_covers_an_address() -> None:
    hosts = HostList(["192.0.2.1", "*.0.0.1"])
    assert parse_host("127.0.0.1") not in hosts
    assert parse_host("192.0.2.1") in hosts  # as credentials may be bound to it


@given(name=_NAME, domain=_NAME)
def test_a_wildcard_agrees_with_the_comparison_of_labels(name: str, domain: str) -> None:
    labels, base = name.split("."), domain.split(".")
    expected = len(labels) > len(base) and labels[-len(base) :] == base
    assert (Host(name) in HostList([f"*.{domain}"])) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "*.com",
        "*.co.uk",
        "*.com.au",
        "*.gov.uk",
        "*.k12.ca.us",
        "*.kawasaki.jp",
        "*.ck",
        "*.xn--p1ai",
        "*.internal",
        "*.localhost",
        "*",
        "*.",
        "*.*.com",
        "a.*.example.com",
        "*a.example.com",
    ],
)
def test_a_wildcard_for_a_whole_registry_is_refused_when_it_is_listed(pattern: str) -> None:
    with pytest.raises(HostError):
        canonical_host(pattern)


@pytest.mark.parametrize(
    "pattern", ["*.example.com", "*.example.co.uk", "*.corp.internal", "*.github.io", "*.www.ck"]
)
def test_a_wildcard_below_a_registry_is_taken(pattern: str) -> None:
    assert canonical_host(pattern) == pattern


@pytest.mark.parametrize(
    ("listed", "pattern", "meets"),
    [
        (["api.example.com"], "api.example.com", True),
        (["api.example.com"], "*.example.com", True),
        (["*.example.com"], "api.example.com", True),
        (["*.a.example.com"], "*.example.com", True),
        (["*.example.com"], "*.a.example.com", True),
        (["*.example.com"], "*.example.com", True),
        (["example.com"], "*.example.com", False),
        (["*.example.com"], "example.com", False),
        (["*.badexample.com"], "*.example.com", False),
        ([], "api.example.com", False),
    ],
)
def test_two_lists_meet_where_a_host_is_in_both(
    listed: list[str], pattern: str, meets: bool
) -> None:
    assert HostList(listed).meets(pattern) is meets
