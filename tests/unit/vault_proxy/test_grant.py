from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.vault_proxy.domain.grant import LIFE_SECONDS, Grant, new_grant, read, sign, told
from services.vault_proxy.domain.refusal import RefusedError, Why

_KEY = b"k" * 32
_NOW = 1_700_000_000_000_000


def _grant(**other: str) -> Grant:
    given = {"session_id": "sesn_1", "hand_id": "hand_1", "workspace_id": "wrkspc_1"} | other
    return new_grant(**given, vault_ids=["vlt_1"], now=_NOW)


def _why(text: str, *, key: bytes = _KEY, now: int = _NOW) -> Why:
    with pytest.raises(RefusedError) as raised:
        read(key, text, now)
    return raised.value.refusal.reason


def test_a_grant_says_whose_it_is_until_it_ends() -> None:
    text = sign(_KEY, _grant())
    assert read(_KEY, text, _NOW) == _grant()
    assert read(_KEY, text, _NOW + LIFE_SECONDS * 1_000_000 - 1) == _grant()
    assert _why(text, now=_NOW + LIFE_SECONDS * 1_000_000) is Why.GRANT_EXPIRED


def test_a_grant_fits_into_a_line_and_a_header() -> None:
    text = sign(_KEY, _grant(hand_id="h" * 128, session_id="s" * 128))
    assert len(text) < 1024
    assert text.isascii()
    assert not set(text) & set(" \r\n\t")


def test_another_installations_grant_is_none() -> None:
    assert _why(sign(b"x" * 32, _grant())) is Why.GRANT_INVALID


@pytest.mark.parametrize(
    "text", ["", "drover_grant_", "drover_grant_.", "x.y", ".", "\udcff", "é", "a" * 10_000]
)
def test_what_is_no_grant_is_refused(text: str) -> None:
    assert _why(text) is Why.GRANT_INVALID


def test_no_bit_of_a_grant_can_be_changed() -> None:
    text = sign(_KEY, _grant())
    for at in range(len(text)):
        other = "A" if text[at] != "A" else "B"
        forged = text[:at] + other + text[at + 1 :]
        # the last characters of base64 have bits that mean nothing
        if _decoded(forged) != _decoded(text):
            assert _why(forged) is Why.GRANT_INVALID


def test_a_grant_that_was_cut_or_lengthened_is_none() -> None:
    text = sign(_KEY, _grant())
    for cut in (text[:-1], text[1:], text + "A", text.partition(".")[0]):
        assert _why(cut) is Why.GRANT_INVALID


def test_a_body_with_the_signature_of_another_is_none() -> None:
    mine, theirs = sign(_KEY, _grant()), sign(_KEY, _grant(session_id="sesn_2"))
    assert _why(f"{theirs.partition('.')[0]}.{mine.partition('.')[2]}") is Why.GRANT_INVALID


@given(st.text(max_size=200))
def test_any_text_is_refused(text: str) -> None:
    assert _why(text) is Why.GRANT_INVALID
    assert _why(f"drover_grant_{text}") is Why.GRANT_INVALID


def test_no_two_lists_of_vaults_are_told_alike() -> None:
    lists = [[], [""], ["a", "b"], ["b", "a"], ["ab"], ["a,b"], ["a", "b", ""]]
    assert len({told(one) for one in lists}) == len(lists)


def _decoded(text: str) -> tuple[bytes, ...]:
    said, dot, signature = text.partition(".")
    try:
        parts = [base64.urlsafe_b64decode(part + "==") for part in (said[13:], signature)]
        json.loads(parts[0])
    except ValueError:
        return (text.encode(),)
    return (said[:13].encode(), dot.encode(), *parts)
