"""Secrets as they are stored: data that only this process can open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

CREDENTIAL: Final = "credential"
SESSION_SECRET: Final = "session_secret"  # noqa: S105
INSTALLATION_KEY: Final = "installation"
"""Kinds of what is sealed or wrapped: part of what is authenticated with it."""

INSTALLATION_ID: Final = "key"


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A key, encrypted by a key provider. `key` names which of whose keys: `file:3`."""

    key: str
    blob: bytes = field(repr=False)

    @property
    def provider(self) -> str:
        """Whose key it is."""
        return self.key.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A secret, encrypted with a key of its own, and that key."""

    key: WrappedKey
    ciphertext: bytes = field(repr=False)
