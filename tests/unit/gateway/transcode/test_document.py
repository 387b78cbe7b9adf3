from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transcode import document
from gateway.transcode.refusal import Refused

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text('ab{}"\\,:', max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty document"),
        (b"{", "not valid JSON"),
        (b'{"a":NaN}', "not valid JSON"),
        (b'{"a":Infinity}', "not valid JSON"),
        (b"{'a':1}", "not valid JSON"),
        (b'{"a":1}x', "not valid JSON"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"\\udc00":1}', "not valid JSON"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'\xef\xbb\xbf{"a":1}', "not valid JSON"),
        (b'{"a":1,"b":2,"a":1}', "a: the key is there twice"),
        (b'[{"x":{"k":1,"\\u006b":2}}]', "k: the key is there twice"),
        (b"[" * 201 + b"]" * 201, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" * 990 + b"]" * 990, "nested too deeply"),
    ],
)
def test_what_no_service_may_see_is_refused(body: bytes, says: str) -> None:
    with pytest.raises(Refused) as refused:
        document.parse(body)
    assert says in str(refused.value.error()) or "not valid JSON" in str(refused.value.error())


def test_nesting_that_services_can_bear_is_taken() -> None:
    assert document.parse(b"[" * 199 + b"]" * 199)


def test_numbers_of_any_length_are_no_way_to_stall_the_gateway() -> None:
    assert document.parse(b'{"a":1.' + b"1" * 5_000 + b"}")
    with pytest.raises(Refused, match="infinity"):
        document.parse(b'{"a":' + b"1" * 5_000 + b"}")


@given(values, st.sampled_from([None, 1]), st.sampled_from([(",", ":"), (" ,\n", "\t: ")]))
def test_parts_are_the_exact_text_of_their_values(
    value: object, indent: int | None, separators: tuple[str, str]
) -> None:
    text = json.dumps(
        {"head": 0, "kept": value, "tail": [value, value]}, indent=indent, separators=separators
    )

    parts = document.whole(f" \n{text}\t".encode()).members()

    assert list(parts) == ["head", "kept", "tail"]
    assert json.loads(parts["kept"].source) == value
    assert parts["kept"].source == parts["kept"].source.strip()
    assert [json.loads(item.source) for item in parts["tail"].items()] == [value, value]
    assert parts["kept"].source in text
