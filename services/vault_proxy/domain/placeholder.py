"""What a sandbox sees in place of a credential's value (ARCHITECTURE §7, pattern 3).

A placeholder is derived from a key of the installation, the session and the credential: nobody can
make one up, it is worth nothing in another session, and it is the same whenever it is asked for.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from services.vault_proxy.domain.session import EnvironmentCredential

MARK: Final = b"drover_placeholder_"
_BYTES: Final = 20
TOKEN: Final = re.compile(re.escape(MARK) + rb"[a-z2-7]{0,32}")
"""A placeholder, whole or cut, true or made up. Its characters need no escapes anywhere."""


def placeholder(key: bytes, session_id: str, credential_id: str) -> str:
    """The placeholder of a credential in a session: 160 bits that cannot be guessed."""
    said = b"\0".join(part.encode() for part in ("placeholder", session_id, credential_id))
    mac = hmac.new(key, said, hashlib.sha256).digest()
    return MARK.decode() + base64.b32encode(mac[:_BYTES]).decode().lower()


class Placeholders:
    """Those of one session."""

    def __init__(
        self, key: bytes, session_id: str, credentials: Iterable[EnvironmentCredential]
    ) -> None:
        self._known = [
            (placeholder(key, session_id, credential.id).encode(), credential)
            for credential in credentials
        ]

    def __iter__(self) -> Iterator[tuple[bytes, EnvironmentCredential]]:
        return iter(self._known)

    def find(self, token: bytes) -> EnvironmentCredential | None:
        """Whose placeholder that is. Takes as long whatever is alike (case V4)."""
        found = None
        for known, credential in self._known:
            if hmac.compare_digest(known, token):
                found = credential
        return found
