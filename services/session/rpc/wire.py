"""Messages put together from ones that are stored in wire form, which need not be taken apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_LENGTH_DELIMITED: Final = 2
_MORE: Final = 0x80
"""Says of a byte of a number that another follows, with bits that weigh more."""


def repeated(number: int, messages: Iterable[bytes]) -> bytes:
    """A repeated field of messages; to be merged into the message that has it."""
    tag = _varint(number << 3 | _LENGTH_DELIMITED)
    return b"".join(part for one in messages for part in (tag, _varint(len(one)), one))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value & (_MORE - 1) | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
