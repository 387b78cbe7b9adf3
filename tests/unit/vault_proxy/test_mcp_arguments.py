from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from services.vault_proxy.mcp.arguments import parsed


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("", {}),
        ("{}", {}),
        ('{"b": 1, "a": [null, true, 1.5e3]}', {"b": 1, "a": [None, True, 1500.0]}),
        ('{"big": 123456789012345678901234567890}', {"big": 123456789012345678901234567890}),
        ('{"\\u00e4": "\\ud83d\\ude00"}', {"ä": "😀"}),
    ],
)
def test_an_object_is_what_it_says(text: str, given: object) -> None:
    assert parsed(text) == given


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "null",
        "{",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        "[" * 10_000,
        '{"a":' * 5_000,
        '{"a": ' + "9" * 10_000 + "}",
    ],
)
def test_what_cannot_be_sent_on_is_refused(text: str) -> None:
    with pytest.raises(DroverError) as refused:
        parsed(text)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    assert refused.value.message.startswith("input: ")
