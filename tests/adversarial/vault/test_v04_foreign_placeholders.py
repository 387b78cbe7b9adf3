"""V4: a placeholder of another session, a forged, cut or outlived one is worth nothing."""

from __future__ import annotations

import hmac

import pytest

from services.vault_proxy.domain import placeholder as module
from services.vault_proxy.domain.placeholder import MARK, placeholder
from services.vault_proxy.domain.refusal import RefusedError, Why
from tests.doubles.egress import KEY, credential, holdings, placeholder_of, substitution

_OURS = holdings(credential())


def _refused(token: bytes) -> None:
    request = substitution(_OURS)
    with pytest.raises(RefusedError) as raised:
        request.headers([(b"authorization", b"Bearer " + token)])
    assert raised.value.refusal.reason is Why.PLACEHOLDER_UNKNOWN
    assert token.decode() not in raised.value.refusal.message
    assert [use.reason for use in request.uses] == ["no placeholder of this session"]
    body = request.body()
    assert body is not None
    assert body.feed(token) + body.finish() == token


def test_the_placeholder_of_another_session_is_refused() -> None:
    theirs = holdings(credential(), session_id="sesn_2")
    assert placeholder_of(theirs) != placeholder_of(_OURS)
    _refused(placeholder_of(theirs))


def test_the_placeholder_of_a_credential_that_is_gone_is_refused() -> None:
    _refused(placeholder(KEY, "sesn_1", "cred_deleted").encode())


def test_the_placeholder_of_another_installation_is_refused() -> None:
    _refused(placeholder(b"x" * 32, "sesn_1", "cred_1").encode())


def test_forged_and_cut_placeholders_are_refused() -> None:
    token = placeholder_of(_OURS)
    last = b"a" if token[-1:] != b"a" else b"b"
    for forged in (token[:-1] + last, token[:-1], MARK + b"a" * 32, MARK):
        _refused(forged)


def test_placeholders_say_nothing_of_each_other() -> None:
    # were parts only put one behind the other, two of these would be alike
    made = {
        placeholder(KEY, session_id, credential_id)
        for session_id, credential_id in [("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc")]
    }
    assert len(made) == 4


def test_a_placeholder_has_160_bits_and_is_the_same_at_every_renewal() -> None:
    text = placeholder(KEY, "sesn_1", "cred_1")
    assert text == placeholder(KEY, "sesn_1", "cred_1")
    assert len(text) == len(MARK) + 32


def test_every_comparison_is_made_in_constant_time_and_none_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[bytes] = []
    honest = hmac.compare_digest

    def compare(known: bytes, token: bytes) -> bool:
        compared.append(known)
        return honest(known, token)

    held = holdings(*(credential(f"cred_{number}") for number in range(5)))
    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    first = placeholder_of(held, "cred_0")
    compared.clear()
    found = held.placeholders.find(first)
    assert found is not None
    assert found.id == "cred_0"
    assert len(compared) == 5
