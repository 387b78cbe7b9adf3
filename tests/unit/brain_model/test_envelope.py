from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.brain.model.envelope import open_envelope, seal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def test_what_stays_is_the_same_text() -> None:
    body = b' { "model" : "m" ,"n": 1.0e2,"stream":true, "messages":[ {"a" :"\\u00e9"} ] } '
    envelope = open_envelope(body, ("model", "stream"))
    assert envelope.taken == {"model": "m", "stream": True}
    assert envelope.members == b'"n": 1.0e2,"messages":[ {"a" :"\\u00e9"} ]'
    assert seal(envelope.members, v="1") == b'{"v":"1","n": 1.0e2,"messages":[ {"a" :"\\u00e9"} ]}'


@given(
    before=st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
    after=st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
)
def test_any_object_comes_back_without_what_was_taken(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    body = {**before, "model": "m", **after, "stream": False}
    envelope = open_envelope(json.dumps(body).encode(), ("model", "stream"))
    assert envelope.taken == {"model": body["model"], "stream": False}
    rest = {name: value for name, value in body.items() if name not in {"model", "stream"}}
    assert json.loads(seal(envelope.members)) == rest
    assert json.loads(seal(envelope.members, first="x")) == {"first": "x", **rest}


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"a":1', b'{"a" 1}', b'{"a":1]', b"null"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        open_envelope(body, ("model",))
