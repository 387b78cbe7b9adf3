"""AES-256-GCM over bytes that belong to something: moved elsewhere, they do not open."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12  # NIST SP 800-38D §8.2.2, drawn at random
_TAG_BYTES: Final = 16


class ForeignError(Exception):
    """Bytes that were changed, belong to something else, or were sealed with another key."""


def draw_key() -> bytes:
    """A new key."""
    return secrets.token_bytes(KEY_BYTES)


def encrypt(key: bytes, plain: bytes, bound_to: bytes) -> bytes:
    """A fresh nonce, the ciphertext and its tag. No key may be used for more than 2³² of them."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, bound_to)


def decrypt(key: bytes, sealed: bytes, bound_to: bytes) -> bytes:
    """What was encrypted for just `bound_to`. Raises `ForeignError`."""
    if len(sealed) < _NONCE_BYTES + _TAG_BYTES:
        raise ForeignError
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
    except InvalidTag:
        raise ForeignError from None


def derive(key: bytes, purpose: str) -> bytes:
    """A key of its own for a purpose (HKDF-SHA256, RFC 5869)."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(key)


def framed(parts: Iterable[str | bytes]) -> bytes:
    """Parts as one text that no other parts make."""
    raw = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(8) + part for part in raw)
