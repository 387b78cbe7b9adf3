from __future__ import annotations

import pytest

from services.brain.domain.visible import visible, visible_in


@pytest.mark.parametrize(
    "text",
    ["plain text, with\ttabs\nand lines", "naïve Größe 漢字 مرحبا", "a heart ❤\ufe0f"],
)
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("safe\u202egnirts", "safe[U+202E]gnirts"),
        ("zero\u200bwidth", "zero[U+200B]width"),
        ("tag\U000e0041s", "tag[U+E0041]s"),
        ("chosen\ufe01", "chosen[U+FE01]"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f[U+FE0F]"),
        ("supplement\U000e0100", "supplement[U+E0100]"),
        ("bell\x07\x1b[31m", "bell[U+0007][U+001B][31m"),
        ("filler\u3164", "filler[U+3164]"),
        ("a\r\nb\rc", "a\nb[U+000D]c"),
        ("isolate\u2066x\u2069", "isolate[U+2066]x[U+2069]"),
        ("soft\u00adhyphen", "soft[U+00AD]hyphen"),
    ],
)
def test_what_hides_or_turns_text_around_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_texts_within_a_schema_are_looked_at_too() -> None:
    schema = {"properties": {"a\u200b": {"description": "x\u202e", "enum": ["y\u200b", 1, None]}}}
    assert visible_in(schema) == {
        "properties": {
            "a[U+200B]": {"description": "x[U+202E]", "enum": ["y[U+200B]", 1, None]},
        }
    }
