"""The forms of values that answers are searched for."""

from __future__ import annotations

import itertools
import json

import pytest

from services.vault_proxy.domain.redaction import forms, redaction

PLAIN = "sk-plain-0123456789"
VALUES = ['secret"quote', "secret\\back", "secrét-beyond", 'sécret"both\\/<']


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_value_is_found_however_deep_json_holds_it_in_ascii_or_not(
    value: str, depth: int
) -> None:
    table = redaction([value])
    for ways in itertools.product((True, False), repeat=depth):
        inner: object = value
        shown = ""
        for ascii_only in ways:
            shown = json.dumps({"data": inner}, ensure_ascii=ascii_only)
            inner = shown
        struck = table.replaced(shown.encode())
        assert len(struck) == len(shown.encode())
        assert struck.count(b"*") >= len(value.encode())
        for part in ("quote", "back", "beyond", "both"):
            assert part.encode() not in struck


@pytest.mark.parametrize("value", VALUES)
def test_a_value_whose_bytes_a_server_took_for_latin_1_is_found(value: str) -> None:
    taken = value.encode().decode("latin-1")
    table = redaction([value])
    for shown in (taken, json.dumps(taken), json.dumps(taken, ensure_ascii=False)):
        struck = table.replaced(shown.encode())
        assert set(struck) <= set(b'*"')


def test_a_value_of_plain_letters_has_few_forms_to_look_for() -> None:
    assert len(forms(PLAIN)) == 6
