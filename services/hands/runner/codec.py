"""JSON in a few lines, on the fast half of `json`.

The other half imports `re`, which takes longer than all else that the agent does at its start.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Options:
    """What `make_scanner` asks a decoder for."""

    def __init__(self) -> None:
        self.strict = False
        self.object_hook = self.object_pairs_hook = None
        self.parse_float, self.parse_int, self.parse_constant = float, int, float
        self.memo: dict[str, str] = {}


_scan = make_scanner(_Options())  # type: ignore[arg-type]  # it takes any object with these


def decode(data: bytes | bytearray) -> dict[str, Any]:
    """What JSON text without spaces stands for."""
    value: dict[str, Any] = _scan(data.decode(), 0)[0]
    return value


def encode(value: object) -> str:
    """JSON text, in ASCII, of a dictionary of texts, numbers, truths and such dictionaries."""
    if isinstance(value, dict):
        items = (f"{encode(key)}:{encode(item)}" for key, item in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
