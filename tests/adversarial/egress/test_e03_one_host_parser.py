"""E3: whatever is written as a host is one canonical host for everybody, or refused."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.hosts import HostError, canonical_host, parse_authority, parse_host, parse_url

_CANONICAL = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")
_PIECES = [
    *"aZ01.-_:[]%@#/\\?*&;,=+!~ \t\r\n\x00\x7f\x80",
    "\N{IDEOGRAPHIC FULL STOP}",
    "\N{KELVIN SIGN}",
    "\N{LATIN SMALL LETTER LONG S}",
    *("xn--", "0x", "::", "127.0.0.1", "fe80", ".com", "localhost"),
]
_TRICKY = st.lists(st.sampled_from(_PIECES), max_size=16).map("".join)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("allowed.example\x00.evil.example", "control characters"),
        ("allowed.example\r\nX: y", "control characters"),
        ("allowed.example\n", "control characters"),
        ("allowed.example ", "spaces"),
        (" allowed.example", "spaces"),
        ("allowed.example\t", "control characters"),
        ("allowed.example.", "dot at its end"),
        (".allowed.example", "must be a host name"),
        ("allowed..example", "must be a host name"),
        ("allowed@evil.example", "user information"),
        ("evil.example#.allowed.example", "fragment"),
        ("evil.example%00.allowed.example", "%-escapes"),
        ("%61llowed.example", "%-escapes"),
        ("evil.example/.allowed.example", "path"),
        ("evil.example\\.allowed.example", "backslash"),
        ("evil.example?.allowed.example", "query"),
        ("*.allowed.example", "wildcard"),
        ("all\N{CYRILLIC SMALL LETTER O}wed.example", "ASCII"),
        ("allowed\N{IDEOGRAPHIC FULL STOP}example", "ASCII"),
        ("\N{KELVIN SIGN}elvin.example", "ASCII"),
        ("xn--.example", "must be a host name"),
        ("xn--allowed-.example", "must be a host name"),
        ("xn--99999999.example", "no internationalised"),
        ("fe80::1%eth0", "without a zone"),
        ("[fe80::1%25eth0]", "without a zone"),
        ("[::1", "port"),
        ("[::1]x", "port"),
        ("[[::1]]", "port"),
        ("1::2::3", "standard form"),
        ("0177.0.0.1", "standard form"),
        ("0x7f000001", "standard form"),
        ("0x7f.0.0.1", "standard form"),
        ("2130706433", "standard form"),
        ("127.1", "standard form"),
        ("127.0.0.1.", "must be a host name"),
        ("127.0.0.256", "standard form"),
        ("allowed.example.0x7", "standard form"),
        ("", "must be a host name"),
        ("-allowed.example", "must be a host name"),
        ("allowed-.example", "must be a host name"),
        ("a" * 64 + ".example", "must be a host name"),
        (".".join(["a" * 50] * 6), "must be a host name"),
    ],
)
def test_a_text_that_others_may_read_as_another_host_is_refused(text: str, says: str) -> None:
    with pytest.raises(HostError, match=says):
        parse_host(text)
    with pytest.raises(HostError):
        parse_host(text.encode())


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("ALLOWED.Example", "allowed.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("r3---sn-4g5e.example", "r3---sn-4g5e.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("[2001:DB8::00FF]", "2001:db8::ff"),
        ("::ffff:127.0.0.1", "::ffff:7f00:1"),
    ],
)
def test_what_is_the_same_host_has_one_spelling(text: str, canonical: str) -> None:
    assert parse_host(text).text == canonical
    assert parse_host(text.encode()) == parse_host(text)


@given(_TRICKY)
def test_every_text_is_refused_or_canonical(text: str) -> None:
    try:
        host = parse_host(text)
    except HostError:
        return
    assert parse_host(str(host)) == host
    if host.address is None:
        assert _CANONICAL.match(host.text)
        assert host.text == text.lower()
        with pytest.raises(ValueError, match="does not appear"):
            ipaddress.ip_address(host.text)
    else:
        assert ipaddress.ip_address(host.text) == host.address


@given(_TRICKY)
def test_a_url_has_the_host_that_other_parsers_see_in_it(text: str) -> None:
    try:
        url = parse_url(f"http://{text}/path?query")
    except HostError:
        return
    seen = urlsplit(f"http://{text}/path?query")
    assert (seen.username, seen.password) == (None, None)
    assert parse_host(seen.hostname or "") == url.host
    # A host alone stands for its root (RFC 9110, 4.2.3).
    assert (seen.port or 80, seen.path or "/", seen.query) == (url.port, url.path, url.query)


@given(_TRICKY)
def test_a_host_that_is_taken_is_one_that_a_strict_server_takes(text: str) -> None:
    try:
        host, port = parse_authority(text, 80)
    except HostError:
        return
    server = h11.Connection(h11.SERVER)
    server.receive_data(f"GET / HTTP/1.1\r\nhost: {host.with_port(port, 'http')}\r\n\r\n".encode())
    request = server.next_event()
    assert isinstance(request, h11.Request)
    assert parse_authority(dict(request.headers)[b"host"], 80) == (host, port)


@given(_TRICKY)
def test_what_can_be_listed_is_what_can_be_asked_for(text: str) -> None:
    try:
        listed = canonical_host(text)
    except HostError:
        listed = ""
    try:
        asked = parse_host(text)
    except HostError:
        asked = None
    if listed and not listed.startswith("*."):
        assert asked is not None
        assert asked.text == listed
    elif asked is not None:
        assert asked.address is not None  # no address is listed


@pytest.mark.parametrize(
    "text",
    [
        "host:",
        "host:0",
        "host:65536",
        "host:+80",
        "host:\N{FULLWIDTH DIGIT EIGHT}",
        "host:080",
        "h:8:0",
        "::1",
        ":80",
    ],
)
def test_a_port_is_a_plain_number(text: str) -> None:
    with pytest.raises(HostError):
        parse_authority(text, 80)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example\\@evil.example/",
        "http://a.example/\\evil",
        "http:a.example/",
        "http:///a.example/",
        "//a.example/",
        "ftp://a.example/",
        "http://user@a.example/",
        "http://a.example/#fragment",
        "http://a.example/a b",
        "http://a.example/\x00",
        "http://a.example/é",
        " http://a.example/",
    ],
)
def test_a_url_that_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(HostError):
        parse_url(url)
