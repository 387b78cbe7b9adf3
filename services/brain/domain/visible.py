"""Texts of strangers with nothing hidden in them.

What a person who reads a tool's description cannot see must not speak to the model: characters that
show nothing, and those that turn the direction of a line around, are written out (`[U+202E]`).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_PLAIN: Final = re.compile(r"[\x20-\x7e\n\t]*")

# Characters that are letters or marks to Unicode, and nothing to the eye.
_FILLERS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS: Final = (("\u180b", "\u180f"), ("\ufe00", "\ufe0e"), ("\U000e0000", "\U000e0fff"))
_EMOJI_STYLE: Final = "\ufe0f"


def visible(text: str) -> str:
    """`text` with each hidden character written out."""
    if _PLAIN.fullmatch(text):
        return text
    shown: list[str] = []
    before = ""
    for character in text.replace("\r\n", "\n"):
        hidden = _is_hidden(character) or character == before == _EMOJI_STYLE
        shown.append(f"[U+{ord(character):04X}]" if hidden else character)
        before = character
    return "".join(shown)


def visible_in(value: Any) -> Any:  # noqa: ANN401  # a value of JSON
    """A value of JSON with all texts in it `visible`, the names of its members included."""
    match value:
        case str():
            return visible(value)
        case list():
            return [visible_in(item) for item in value]
        case dict():
            return {visible(key): visible_in(item) for key, item in value.items()}
        case _:
            return value


def _is_hidden(character: str) -> bool:
    if character in "\n\t":
        return False
    if unicodedata.category(character) in _HIDDEN_CATEGORIES or character in _FILLERS:
        return True
    return any(first <= character <= last for first, last in _SELECTORS)
