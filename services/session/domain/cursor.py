"""Page cursors: opaque, and good only for the list, order and filter that they were made for."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import TYPE_CHECKING

from services.session.domain.admission import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAC_BYTES = 12

Value = int | str | bool | None


class Cursors:
    """Seals positions with a key of the installation.

    `scope` is everything that must be the same when a cursor comes back: the list, whose it is, its
    order and filter.
    """

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(b"session cursors\0" + key).digest()

    def seal(self, scope: object, values: Sequence[Value]) -> str:
        """A cursor that stands for `values` within `scope`."""
        body = json.dumps(list(values), separators=(",", ":")).encode()
        return _text(self._mac(scope, body) + body)

    def open(self, scope: object, cursor: str) -> list[Value]:
        """The values behind a cursor. Raises INVALID_ARGUMENT for one from anywhere else."""
        try:
            sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            sealed = b""
        mac, body = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        # One cursor, one text: the last character has bits that no byte depends on.
        ours = hmac.compare_digest(mac, self._mac(scope, body)) and _text(sealed) == cursor
        if not ours:
            raise refuse("page", "the cursor does not belong to this list, order and filter")
        values: list[Value] = json.loads(body)
        return values

    def _mac(self, scope: object, body: bytes) -> bytes:
        text = repr(scope).encode() + b"\0" + body
        return hmac.digest(self._key, text, "sha256")[:_MAC_BYTES]


def _text(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()
