"""Which paths a memory can have: the store's rules, told before it is asked."""

from __future__ import annotations

import unicodedata
from typing import Final

from services.hands.domain.memory.known import MAX_PATH_BYTES, MAX_SEGMENTS

_FORBIDDEN: Final = {
    "Cc": "a control character",
    "Cf": "a format character",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}


def trouble(path: str) -> str:
    """What is wrong with a path, empty if nothing is. Names are as the file system has them."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if size > MAX_PATH_BYTES:
        return f"its path is longer than {MAX_PATH_BYTES:,} bytes"
    if path.count("/") > MAX_SEGMENTS:
        return f"it is more than {MAX_SEGMENTS} levels deep"
    for character in () if path.isascii() and path.isprintable() else path:
        if found := _FORBIDDEN.get(unicodedata.category(character)):
            return f"its name has {found}, U+{ord(character):04X}"
    if not unicodedata.is_normalized("NFC", path):
        return "its name is not in Unicode Normalization Form C"
    return ""


def shown(path: str) -> str:
    """A path as it can be printed."""
    return "".join(
        character if character.isprintable() else _escaped(character) for character in path
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
