"""The key providers of an installation: one wraps, all that are set up unwrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.vault_proxy.crypto.provider import unknown_key
from services.vault_proxy.domain.sealed import WrappedKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.vault_proxy.crypto.provider import KeyProvider


class Keyring:
    """What wraps now, and what earlier keys were wrapped by."""

    def __init__(self, active: KeyProvider, former: Sequence[KeyProvider] = ()) -> None:
        self._active = active
        self._providers = {provider.name: provider for provider in (*former, active)}

    async def current(self) -> str:
        """The name of the key that wraps now."""
        return await self._active.current()

    async def wrap(self, key: bytes, context: bytes) -> WrappedKey:
        """Wraps with the active provider."""
        return await self._active.wrap(key, context)

    async def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        """Unwraps with the provider that wrapped. Raises INTERNAL where it is not set up."""
        provider = self._providers.get(wrapped.provider)
        if provider is None:
            raise unknown_key(wrapped.key)
        return await provider.unwrap(wrapped, context)

    async def rewrap(self, wrapped: WrappedKey, context: bytes) -> WrappedKey:
        """The same key, wrapped with the current one. It is in the clear in memory only."""
        return await self.wrap(await self.unwrap(wrapped, context), context)

    async def renew(self) -> str:
        """Has the active provider make a new key; answers its name."""
        return await self._active.renew()
