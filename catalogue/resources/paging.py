"""Pages of a list, newest first: opaque cursors that fit only the list they came from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from chassis.errors import DroverError, Reason

DEFAULT_LIMIT = 20
_DIGEST = 12
_HEAD = struct.Struct(">q")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Position:
    """The last item that a page showed: when it was made, in Unix microseconds, and its id.

    Lists of versions use the version for `order` and leave `item_id` empty.
    """

    order: int
    item_id: str = ""


@dataclass(frozen=True, slots=True)
class CursorBinding:
    """What a cursor belongs to: a kind of list, its workspace and every filter.

    A cursor read under another binding is refused: its position would mean something else there.
    """

    parts: tuple[str, ...]

    def write(self, position: Position) -> str:
        """The cursor after `position`."""
        body = _HEAD.pack(position.order) + position.item_id.encode()
        return _text(self._digest(body) + body)

    def read(self, cursor: str) -> Position:
        """The position that `cursor` stands for. Raises INVALID_ARGUMENT if it is not ours."""
        try:
            text = cursor.encode("ascii")
            raw = base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            digest, body = raw[:_DIGEST], raw[_DIGEST:]
            (order,) = _HEAD.unpack_from(body)
            item_id = body[_HEAD.size :].decode()
        except (ValueError, binascii.Error, struct.error):
            raise _not_ours() from None
        # A checksum, no signature: a forged cursor could show nothing beyond its own list.
        # One cursor, one text: the last character has bits that no byte depends on.
        if digest != self._digest(body) or _text(raw) != cursor:
            raise _not_ours()
        return Position(order, item_id)

    def _digest(self, body: bytes) -> bytes:
        digest = hashlib.blake2b(digest_size=_DIGEST)
        for part in (*(part.encode() for part in self.parts), body):
            digest.update(len(part).to_bytes(8) + part)
        return digest.digest()


def cut(rows: Sequence[T], limit: int) -> tuple[Sequence[T], T | None]:
    """Splits one row too many off a page.

    `rows` were asked for with `limit + 1`: the second value is the page's last row when there are
    more, so that the last page never carries a cursor (ENDPOINTS §0).
    """
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], rows[limit - 1]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _not_ours() -> DroverError:
    return DroverError(Reason.INVALID_ARGUMENT, "page: not a cursor of this list")
