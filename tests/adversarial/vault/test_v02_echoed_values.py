"""V2: a bound host that sends back what it was sent shows the sandbox no value."""

from __future__ import annotations

import base64
import html
import json
import re
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.vault_proxy.domain.redaction import redaction
from services.vault_proxy.domain.rewriting import Rewriter
from tests.doubles.egress import CANARY, credential, holdings, placeholder_of, substitution

_RAW = CANARY.encode()
_LATIN = _RAW.decode("latin-1")
_ECHOES = {
    "plain": _RAW,
    "JSON": json.dumps(CANARY).encode(),
    "JSON in UTF-8": json.dumps(CANARY, ensure_ascii=False).encode(),
    "JSON with escaped slashes": json.dumps(CANARY).replace("/", "\\/").encode(),
    "JSON with capital digits": json.dumps(CANARY).replace("\\u00e9", "\\u00E9").encode(),
    "JSON in HTML": json.dumps("<" + CANARY).replace("<", "\\u003c").encode(),
    "a query": urllib.parse.urlencode({"q": CANARY}).encode(),
    "a path": urllib.parse.quote(CANARY).encode(),
    "a path in small digits": re.sub(
        "%..", lambda one: one[0].lower(), urllib.parse.quote(CANARY, safe="")
    ).encode(),
    "a component": urllib.parse.quote(CANARY, safe="!'()*").encode(),
    "HTML": html.escape(CANARY).encode(),
    "hexadecimal digits": _RAW.hex().encode(),
    "basic authentication": base64.b64encode(b"user:" + _RAW),
    "base64, first alignment": base64.b64encode(_RAW + b"!"),
    "base64, second alignment": base64.b64encode(b"a" + _RAW + b"!!"),
    "base64, third alignment": base64.b64encode(b"ab" + _RAW),
    "JSON in JSON": json.dumps(json.dumps({"k": CANARY}, ensure_ascii=False))[9:-3].encode(),
    "JSON in base64": base64.b64encode(json.dumps(CANARY, ensure_ascii=False).encode()),
    "a form in JSON": json.dumps(urllib.parse.quote_plus(CANARY)).encode(),
    "a form in base64": base64.b64encode(urllib.parse.quote_plus(CANARY).encode()),
    "a form in a query": urllib.parse.quote_plus(urllib.parse.quote_plus(CANARY)).encode(),
    "JSON in JSON in ASCII": json.dumps(json.dumps(CANARY)).encode(),
    "JSON in JSON in JSON": json.dumps(json.dumps(json.dumps(CANARY, ensure_ascii=False))).encode(),
    "a header taken for Latin-1": _LATIN.encode(),
    "a header taken for Latin-1 in JSON": json.dumps(_LATIN).encode(),
    "a header taken for Latin-1 in JSON in UTF-8": json.dumps(_LATIN, ensure_ascii=False).encode(),
    "a header taken for Latin-1 in a query": urllib.parse.quote_plus(_LATIN).encode(),
    "base64 for URLs": base64.urlsafe_b64encode(b"a" + _RAW),
}


def _sent() -> Rewriter:
    held = holdings(credential())
    request = substitution(held)
    request.headers([(b"x-api-key", placeholder_of(held))])
    answer = request.answer()
    assert answer is not None
    return answer


@pytest.mark.parametrize("form", _ECHOES)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_no_form_of_a_value_comes_through_in_chunks_of_any_size(form: str, size: int) -> None:
    answer = _sent()
    body = b'{"echo": "' + _ECHOES[form] + b'"} and more'
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    seen = b"".join([*map(answer.feed, chunks), answer.finish()])
    assert len(seen) == len(body)
    assert seen.endswith(b'"} and more')
    assert seen.startswith(b'{"echo": "')
    assert b"***" in seen
    shown = seen[len(b'{"echo": "') : -len(b'"} and more')].strip(b'"').replace(b"*", b"")
    # Beside the value in base64 stands what is not secret; at either edge a few bits are shared.
    assert len(shown) <= len(b"dXNlcjp") + len(b"x") + len(b"x==")


def test_headers_of_the_answer_show_no_value_either() -> None:
    held = holdings(credential())
    request = substitution(held)
    request.headers([(b"x-api-key", placeholder_of(held))])
    there = urllib.parse.quote_plus(CANARY).encode()
    headers = request.answer_headers(
        [(b"location", b"https://evil.example/?k=" + there), (b"x-echo", _RAW), (b"etag", b'"1"')]
    )
    assert headers == [
        (b"location", b"https://evil.example/?k=" + b"*" * len(there)),
        (b"x-echo", b"*" * len(_RAW)),
        (b"etag", b'"1"'),
    ]


def test_a_bound_host_is_not_believed_to_forget_between_requests() -> None:
    request = substitution(holdings(credential()), method="GET")
    request.headers([(b"accept", b"*/*")])
    answer = request.answer()
    assert request.bound
    assert answer is not None
    seen = answer.feed(b"what you sent last time: " + _RAW) + answer.finish()
    assert seen == b"what you sent last time: " + b"*" * len(_RAW)


def test_a_value_bound_to_no_host_is_struck_out_where_it_was_sent() -> None:
    held = holdings(credential(hosts=None))
    request = substitution(held, "https://anywhere.example/")
    request.headers([(b"authorization", b"Bearer " + placeholder_of(held))])
    answer = request.answer()
    assert answer is not None
    assert _RAW not in answer.feed(_RAW) + answer.finish()


def test_an_answer_that_comes_before_the_body_is_sent_is_struck_out_as_well() -> None:
    request = substitution(holdings(credential(hosts=None)), "https://anywhere.example/")
    request.headers([(b"content-length", b"100")])
    assert request.body() is not None
    assert request.bound
    answer = request.answer()
    assert answer is not None
    assert _RAW not in answer.feed(_RAW) + answer.finish()


def test_lines_and_objects_are_not_held_back() -> None:
    answer = _sent()
    for event in (b"data: 1\n\n", b'{"a": [1]}', b"<p>done</p>", b"a sentence, "):
        assert answer.feed(event) == event
    assert not answer.holding


@pytest.mark.parametrize("value", [CANARY, "pa ss{word}"])
def test_when_bytes_go_on_does_not_tell_how_a_value_begins(value: str) -> None:
    """Else a program would guess it byte by byte, by which of its guesses come back late."""
    table = redaction([value])
    for length in range(1, len(value)):
        begun = value[:length]
        for other in "aZ5-/":  # for any byte that could be the next one of it
            right, wrong = Rewriter(table), Rewriter(table)
            said = f"data: {begun}".encode()
            guess = f"data: {begun[:-1]}{other}".encode()
            if value[length - 1].isalnum() == other.isalnum():
                assert len(right.feed(said)) == len(wrong.feed(guess))


def test_what_is_held_back_goes_on_after_a_pause_and_whole_values_do_not() -> None:
    answer = _sent()
    assert answer.feed(b"data: sk-can") == b"data: "
    assert answer.holding
    assert answer.finish() == b"sk-can"
    assert not answer.holding
    assert answer.feed(_RAW) == b""
    assert answer.finish() == b"*" * len(_RAW)


def test_a_client_cannot_ask_for_an_answer_with_a_value_in_pieces() -> None:
    held = holdings(credential())
    request = substitution(held, method="GET")
    headers = [
        (b"X-Api-Key", placeholder_of(held)),
        (b"Range", b"bytes=0-3"),
        (b"If-Range", b'"1"'),
    ]
    assert [name for name, _ in request.headers(headers)] == [b"X-Api-Key"]


def test_a_value_that_another_begins_with_does_not_uncover_the_longer_one() -> None:
    table = redaction(["secret-one", "secret-one-and-more"])
    for cut in range(1, 19):
        stream = Rewriter(table)
        text = b"secret-one-and-more"
        assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.finish() == b"*" * 19


def test_a_value_too_short_to_be_told_from_any_text_is_left() -> None:
    assert not redaction(["abc"])


@settings(max_examples=200)
@given(
    value=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=8, max_size=40),
    before=st.binary(max_size=5),
    cuts=st.lists(st.integers(1, 30), max_size=20),
)
def test_whatever_the_value_and_the_chunks_no_plain_or_base64_form_is_seen(
    value: str, before: bytes, cuts: list[int]
) -> None:
    raw = value.encode()
    body = before + raw + b"|" + base64.b64encode(before + raw + b"tail") + b"|"
    stream = Rewriter(redaction([value]))
    seen, at = b"", 0
    for cut in cuts:
        seen += stream.feed(body[at : at + cut])
        at += cut
    seen += stream.feed(body[at:]) + stream.finish()
    assert len(seen) == len(body)
    assert raw not in seen
    assert base64.b64encode(before + raw)[-16:].rstrip(b"=")[:-1] not in seen
