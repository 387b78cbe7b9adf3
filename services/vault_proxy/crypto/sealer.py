"""Keys of the installation: one that is drawn once, and all that are derived from it."""

from __future__ import annotations

from typing import Final

from services.vault_proxy.crypto.aead import ForeignError, decrypt, derive, encrypt
from services.vault_proxy.crypto.provider import unfit

_SEAL: Final = "drover sealer"
_NAME: Final = "installation"


class InstallationKey:
    """Implements `Sealer` and `SigningKeys` over the installation's key.

    It is unwrapped once, when the process starts: what is signed and sealed with it goes on while
    the key provider does not answer.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._seal = derive(key, _SEAL)

    def __repr__(self) -> str:
        return "InstallationKey(***)"

    def derived(self, purpose: str) -> bytes:
        """32 bytes, always the same for a purpose, the same in every replica."""
        return derive(self._key, f"drover purpose: {purpose}")

    async def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        """Encrypts; `bound_to` is authenticated."""
        return encrypt(self._seal, plain, bound_to)

    async def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """What was sealed for just `bound_to`. Raises INTERNAL for anything else."""
        try:
            return decrypt(self._seal, sealed, bound_to)
        except ForeignError:
            raise unfit(_NAME) from None
