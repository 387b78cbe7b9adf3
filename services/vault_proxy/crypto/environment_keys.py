"""Keys from a setting, such as an orchestrator's secret gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chassis.errors import CannotStartError, DroverError, Reason
from services.vault_proxy.crypto.file_keys import parsed
from services.vault_proxy.crypto.provider import unwrap_with, wrap_with
from services.vault_proxy.domain.sealed import WrappedKey

if TYPE_CHECKING:
    from chassis.secret import Secret

NAME: Final = "environment"


class EnvironmentKeys:
    """`1:<base64>,2:<base64>`: the last is the current one."""

    name = NAME

    def __init__(self, keys: Secret) -> None:
        """Raises `CannotStartError` for what cannot be used, without showing it."""
        lines = [part.strip().replace(":", " ", 1) for part in keys.open().split(",")]
        try:
            self._keys = parsed([line for line in lines if line], NAME)
        except ValueError as error:
            msg = f"DROVER_VAULT_KEYS: {error}"
            raise CannotStartError(msg) from None

    async def current(self) -> str:
        """The last key of the setting."""
        return next(reversed(self._keys))

    async def wrap(self, key: bytes, context: bytes) -> WrappedKey:
        """Encrypts with the current key."""
        return wrap_with(self._keys, await self.current(), key, context)

    async def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        """Decrypts with the key that it was wrapped by."""
        return unwrap_with(self._keys, wrapped, context)

    async def renew(self) -> str:
        """Refused: keys are made where the setting is."""
        raise DroverError(
            Reason.UNIMPLEMENTED,
            "keys of the environment are made where DROVER_VAULT_KEYS is set: append one there, "
            "restart the vault proxy, and rotate without a new key",
        )
