"""Envelopes: each secret has a key of its own, which is kept wrapped beside it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from services.vault_proxy.crypto.aead import ForeignError, decrypt, draw_key, encrypt, framed
from services.vault_proxy.crypto.provider import unfit
from services.vault_proxy.domain.sealed import Sealed

if TYPE_CHECKING:
    from chassis.clock import Clock
    from services.vault_proxy.crypto.keyring import Keyring
    from services.vault_proxy.domain.sealed import WrappedKey

_MOST_KEYS: Final = 4_096


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sealed secret belongs: it opens nowhere else.

    `binding` says to whom the secret may go, whatever form that has.
    """

    kind: str
    workspace_id: str
    owner_id: str
    id: str
    binding: bytes = b""

    @property
    def key_context(self) -> bytes:
        """What is authenticated with the wrapped key: with it, the name of the key that wraps."""
        return framed((self.kind, self.workspace_id, self.owner_id, self.id))

    @property
    def secret_context(self) -> bytes:
        """What is authenticated with the secret."""
        return framed((self.kind, self.workspace_id, self.owner_id, self.id, self.binding))


class Envelopes:
    """Seals and opens. Unwrapped keys stay in memory for `seconds`, so that a provider may fail."""

    def __init__(self, keyring: Keyring, clock: Clock, seconds: float) -> None:
        self._keyring = keyring
        self._clock = clock
        self._seconds = seconds
        self._known: OrderedDict[tuple[bytes, bytes], tuple[bytes, float]] = OrderedDict()

    async def seal(self, plain: bytes, place: Place) -> Sealed:
        """Encrypts with a new key. Raises UNAVAILABLE while the key provider does not answer."""
        key = draw_key()
        wrapped = await self._keyring.wrap(key, place.key_context)
        return Sealed(wrapped, encrypt(key, plain, place.secret_context))

    async def open(self, sealed: Sealed, place: Place) -> bytes:
        """What was sealed for just this place.

        Raises UNAVAILABLE, and INTERNAL for what was changed or belongs elsewhere.
        """
        key = await self._unwrapped(sealed.key, place.key_context)
        try:
            return decrypt(key, sealed.ciphertext, place.secret_context)
        except ForeignError:
            raise unfit(sealed.key.key) from None

    def forget(self) -> None:
        """Drops every unwrapped key: the next use asks the provider."""
        self._known.clear()

    async def _unwrapped(self, wrapped: WrappedKey, context: bytes) -> bytes:
        known = framed((wrapped.key, wrapped.blob)), context
        found = self._known.get(known)
        now = self._clock.monotonic()
        if found is not None and now < found[1]:
            return found[0]
        self._known.pop(known, None)
        key = await self._keyring.unwrap(wrapped, context)
        self._known[known] = key, self._clock.monotonic() + self._seconds
        while len(self._known) > _MOST_KEYS:
            self._known.popitem(last=False)
        return key
