from __future__ import annotations

import pytest

from catalogue.hosts import HostError, canonical_host, parse_url


@pytest.mark.parametrize(
    "host",
    [
        "packages.example.org",
        "*.example.com",
        "api-2.internal",
        "db",
        "localhost",
        "xn--bcher-kva.example",
        "*.example.co.uk",
        "*.github.io",
        "1password.com",
        "a" * 63 + ".example",
    ],
)
def test_bare_names_and_first_label_wildcards_are_hosts(host: str) -> None:
    assert canonical_host(host) == host


def test_hosts_are_kept_in_lower_case() -> None:
    assert canonical_host("*.API.Example.COM") == "*.api.example.com"


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("https://example.com", "without a scheme"),
        ("example.com:443", "without a port"),
        ("example.com/path", "without a path"),
        ("example.com?q", "without a path"),
        ("user@example.com", "without user information"),
        ("192.168.0.1", "not an IP address"),
        ("[::1]", "not an IP address"),
        ("::1", "not an IP address"),
        ("fe80::1%eth0", "not an IP address"),
        ("2130706433", "not an IP address"),
        ("0x7f000001", "not an IP address"),
        ("127.1", "not an IP address"),
        ("0x7f.0.0.0x1", "not an IP address"),
        ("*.127.0.0.1", "not an IP address"),
        ("*", "whole first label"),
        ("*.*.example.com", "whole first label"),
        ("api.*.example.com", "whole first label"),
        ("api*.example.com", "whole first label"),
        ("*.com", "whole registry"),
        ("*.CO.UK", "whole registry"),
        ("*.com.au", "whole registry"),
        ("*.internal", "whole registry"),
        ("*.", "must be a host name"),
        ("", "must be a host name"),
        (".", "must be a host name"),
        ("example.com.", "must be a host name"),
        ("example..com", "must be a host name"),
        ("-a.example", "must be a host name"),
        ("a_b.example", "must be a host name"),
        ("a" * 64 + ".example", "must be a host name"),
        (".".join(["a" * 60] * 5), "must be a host name"),
        ("exa mple.com", "must be a host name"),
        ("example.com\n", "must be a host name"),
        ("example.com\x00.evil.com", "must be a host name"),
        ("bücher.example", "must be ASCII"),
        ("example。com", "must be ASCII"),
    ],
)
def test_what_is_no_bare_host_is_refused_with_the_reason(host: str, says: str) -> None:
    with pytest.raises(HostError, match=says):
        canonical_host(host)


def test_no_spelling_that_lower_case_changes_into_ascii_is_a_host() -> None:
    # U+212A KELVIN SIGN lowers to an ASCII k: "\N{KELVIN SIGN}.example" is not "k.example".
    with pytest.raises(HostError, match="ASCII"):
        canonical_host("\N{KELVIN SIGN}.example")


@pytest.mark.parametrize("before", ["ghp_7Qz", "user:ghp_7Qz", "user:443"])
def test_a_token_in_a_url_is_refused_as_such_without_showing_it(before: str) -> None:
    with pytest.raises(HostError, match="must be a bare host, without user information") as refused:
        parse_url(f"https://{before}@example.com/path")
    assert before not in str(refused.value)
