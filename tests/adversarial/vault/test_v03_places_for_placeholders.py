"""V3: a placeholder counts in the places and for the hosts that it is meant for, and is noted."""

from __future__ import annotations

import base64

import pytest

from services.vault_proxy.domain.refusal import RefusedError, Why
from services.vault_proxy.domain.substitution import RequestSubstitution
from tests.doubles.egress import (
    CANARY,
    credential,
    holdings,
    placeholder_of,
    substitution,
    target,
)

_RAW = CANARY.encode()


def _reasons(request: RequestSubstitution) -> list[tuple[str, str]]:
    return [(use.credential_id, use.reason) for use in request.uses]


@pytest.mark.parametrize(
    "template", [b"%b", b"Bearer %b", b"key=%b;", b'{"k":"%b"}', b"%bsuffix", b"%b, %b"]
)
def test_a_header_towards_the_bound_host_holds_the_value(template: bytes) -> None:
    held = holdings(credential())
    request = substitution(held)
    given = template.replace(b"%b", placeholder_of(held))
    assert request.headers([(b"Authorization", given)]) == [
        (b"Authorization", template.replace(b"%b", _RAW))
    ]
    assert _reasons(request) == [("cred_1", "")]
    assert request.used


@pytest.mark.parametrize("name", [b"Host", b"Cookie", b"User-Agent", b"Referer", b"COOKIE"])
def test_no_header_that_servers_log_or_pass_on_holds_the_value(name: bytes) -> None:
    held = holdings(credential())
    request = substitution(held)
    headers = [(name, b"a=" + placeholder_of(held))]
    assert request.headers(headers) == headers
    assert _reasons(request) == [("cred_1", f"not substituted in {name.decode().lower()}")]
    assert not request.used


@pytest.mark.parametrize(
    ("url", "place"),
    [("https://api.example.com/%s", "path"), ("https://api.example.com/?k=%s", "query")],
)
def test_no_path_and_no_query_holds_the_value(url: str, place: str) -> None:
    held = holdings(credential())
    request = substitution(held, url.replace("%s", placeholder_of(held).decode()))
    assert request.headers([(b"accept", b"*/*")]) == [(b"accept", b"*/*")]
    assert _reasons(request) == [("cred_1", f"not substituted in a {place}")]


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/",
        "https://example.com/",
        "https://api.example.com.evil.example/",
        "https://notapi.example.com/",
        "https://a.api.example.com/",
    ],
)
def test_no_other_host_is_sent_the_value(url: str) -> None:
    held = holdings(credential())
    request = substitution(held, url)
    token = placeholder_of(held)
    assert request.headers([(b"authorization", token)]) == [(b"authorization", token)]
    assert _reasons(request) == [("cred_1", "not bound to this host")]
    assert request.body() is None


def test_no_value_goes_out_without_tls() -> None:
    held = holdings(credential())
    request = substitution(held, "http://api.example.com/")
    token = placeholder_of(held)
    assert request.headers([(b"authorization", token)]) == [(b"authorization", token)]
    assert request.body() is None
    assert _reasons(request) == [("cred_1", "not substituted outside TLS")]
    answer = request.answer()  # of what it was sent in TLS, and has not forgotten
    assert answer is not None
    assert _RAW not in answer.feed(_RAW) + answer.finish()


def test_a_placeholder_in_base64_or_in_two_headers_is_none() -> None:
    held = holdings(credential(hosts=None))
    request = substitution(held)
    token = placeholder_of(held)
    half = len(token) // 2
    headers = [
        (b"x-basic", base64.b64encode(b"user:" + token)),
        (b"x-second-half", token[half:]),
        (b"x-upper", token.upper()),
        (b"x-reversed", token[::-1]),
    ]
    assert request.headers(headers) == headers
    assert not request.used


def test_a_cut_placeholder_is_refused_in_a_header() -> None:
    held = holdings(credential())
    token = placeholder_of(held)
    for cut in (len(token) - 1, len(token) // 2 + 5, len(b"drover_placeholder_")):
        with pytest.raises(RefusedError) as raised:
            substitution(held).headers([(b"authorization", token[:cut])])
        assert raised.value.refusal.reason is Why.PLACEHOLDER_UNKNOWN


def test_a_credential_for_bodies_alone_is_put_into_no_header() -> None:
    held = holdings(credential(header=False))
    request = substitution(held)
    token = placeholder_of(held)
    assert request.headers([(b"authorization", token)]) == [(b"authorization", token)]
    assert _reasons(request) == [("cred_1", "not to be put into headers")]


def test_a_credential_for_headers_alone_is_put_into_no_body() -> None:
    held = holdings(credential(body=False), credential("cred_2", "the-other-value"))
    request = substitution(held)
    body = request.body()
    assert body is not None
    token = placeholder_of(held)
    assert body.feed(b"a" + token + b"b") + body.finish() == b"a" + token + b"b"
    assert _reasons(request) == [("cred_1", "not to be put into bodies")]


@pytest.mark.parametrize("size", [1, 3, 20, 51, 52, 1000])
def test_a_body_holds_the_value_whatever_chunks_it_comes_in(size: int) -> None:
    held = holdings(credential())
    request = substitution(held)
    request.headers([(b"content-type", b"application/octet-stream")])
    stream = request.body()
    assert stream is not None
    token = placeholder_of(held)
    body = b"before " + token + b" between " + token + b" and " + token[:-1]
    sent = b"".join(stream.feed(body[at : at + size]) for at in range(0, len(body), size))
    sent += stream.finish()
    assert sent == b"before " + _RAW + b" between " + _RAW + b" and " + token[:-1]
    assert _reasons(request) == [("cred_1", "")]


@pytest.mark.parametrize(
    ("content_type", "written"),
    [
        (b"application/json", rb"sk-canary/7+A=\"" + "é".encode()),
        (b"application/vnd.api+json; charset=utf-8", rb"sk-canary/7+A=\"" + "é".encode()),
        (b"application/x-www-form-urlencoded", b"sk-canary%2F7%2BA%3D%22%C3%A9"),
        (b"text/plain", _RAW),
    ],
)
def test_a_body_holds_the_value_as_its_type_writes_texts(
    content_type: bytes, written: bytes
) -> None:
    held = holdings(credential())
    request = substitution(held)
    request.headers([(b"Content-Type", content_type)])
    stream = request.body()
    assert stream is not None
    assert stream.feed(b'"' + placeholder_of(held) + b'"') + stream.finish() == (
        b'"' + written + b'"'
    )


def test_a_body_that_is_encoded_passes_as_it_is() -> None:
    request = substitution(holdings(credential()))
    request.headers([(b"content-encoding", b"gzip")])
    assert request.body() is None


def test_a_value_that_looks_like_a_placeholder_is_not_substituted_again() -> None:
    inner = placeholder_of(holdings(credential("cred_2")), "cred_2").decode()
    held = holdings(credential(value=inner), credential("cred_2"))
    request = substitution(held)
    token = placeholder_of(held)
    assert request.headers([(b"x-a", token)]) == [(b"x-a", inner.encode())]
    stream = request.body()
    assert stream is not None
    assert stream.feed(token) + stream.finish() == inner.encode()


def test_the_first_host_of_a_wildcard_binding_is_bound_and_its_neighbour_not() -> None:
    held = holdings(credential(hosts=["*.example.com"]))
    token = placeholder_of(held)
    for host, value in (("a.example.com", _RAW), ("example.com", token), ("aexample.com", token)):
        request = RequestSubstitution(held, target(f"https://{host}/"))
        assert request.headers([(b"authorization", token)]) == [(b"authorization", value)]
