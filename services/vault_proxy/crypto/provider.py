"""Key providers: what wraps the keys that secrets are encrypted with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from chassis.errors import DroverError, Reason
from services.vault_proxy.crypto.aead import ForeignError, decrypt, encrypt, framed
from services.vault_proxy.domain.sealed import WrappedKey

if TYPE_CHECKING:
    from collections.abc import Mapping


class KeyProvider(Protocol):
    """Wraps keys, each for a context. Raises `unavailable` and `unfit` errors."""

    @property
    def name(self) -> str:
        """What its keys' names begin with."""
        ...

    async def current(self) -> str:
        """The name of the key that `wrap` takes now."""
        ...

    async def wrap(self, key: bytes, context: bytes) -> WrappedKey:
        """Encrypts a key; `context` and the name of its own key are authenticated with it."""
        ...

    async def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        """The key again, for the same context only."""
        ...

    async def renew(self) -> str:
        """Makes a new key, which `wrap` takes from now on; the old ones go on to unwrap.

        Answers its name. Raises UNIMPLEMENTED where keys are made elsewhere.
        """
        ...


def unavailable(provider: str, why: str) -> DroverError:
    """UNAVAILABLE: nothing can be opened for as long as the provider does not answer."""
    return DroverError(
        Reason.UNAVAILABLE,
        f"credentials cannot be opened: the key provider {provider!r} {why}",
        retry_after=5.0,
    )


def unfit(key: str) -> DroverError:
    """INTERNAL: a record was changed, swapped with another's, or wrapped by another key."""
    return DroverError(
        Reason.INTERNAL,
        f"a stored secret does not fit its record or its key {key!r}, and stays closed",
    )


def unknown_key(key: str) -> DroverError:
    """INTERNAL: no provider has the key any more, or is not set up any more."""
    return DroverError(
        Reason.INTERNAL,
        f"a stored secret is wrapped with the key {key!r}, which this installation does not have",
    )


_WRAP: Final = "drover data key"


def wrap_with(keys: Mapping[str, bytes], name: str, key: bytes, context: bytes) -> WrappedKey:
    """Wraps by a key that is in this process's memory."""
    return WrappedKey(name, encrypt(keys[name], key, framed((_WRAP, name, context))))


def unwrap_with(keys: Mapping[str, bytes], wrapped: WrappedKey, context: bytes) -> bytes:
    """Undoes `wrap_with`."""
    if wrapped.key not in keys:
        raise unknown_key(wrapped.key)
    try:
        return decrypt(keys[wrapped.key], wrapped.blob, framed((_WRAP, wrapped.key, context)))
    except ForeignError:
        raise unfit(wrapped.key) from None
