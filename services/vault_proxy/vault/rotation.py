"""Rotation: every stored key is wrapped anew, with the key provider's newest key."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from services.vault_proxy.vault.places import place_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from services.vault_proxy.crypto.keyring import Keyring
    from services.vault_proxy.domain.sealed import WrappedKey
    from services.vault_proxy.domain.vault_ports import WrappedKeys, WrappedRow

_BATCH: Final = 50

_log = structlog.get_logger("vault_proxy.rotation")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rotation is: so many of `total` keys are wrapped with `key`."""

    key: str
    done: int
    total: int


class Rotation:
    """Wraps keys anew, a batch a transaction. Ciphertexts stay as they are.

    A rotation that was broken off goes on with what is left: what is to be done is what the
    database says is wrapped with another key. Keys are in the clear in memory only.
    """

    def __init__(self, keys: WrappedKeys, keyring: Keyring) -> None:
        self._keys = keys
        self._keyring = keyring
        self._turn = asyncio.Lock()

    async def run(self, *, new_key: bool) -> AsyncIterator[Progress]:
        """Rotates, with a new key of the provider where `new_key` says so.

        Raises CONFLICT while another rotation goes on, UNIMPLEMENTED where keys are made elsewhere,
        and what the provider raises.
        """
        if self._turn.locked():
            raise DroverError(Reason.CONFLICT, "another rotation goes on")
        async with self._turn:
            current = await self._keyring.renew() if new_key else await self._keyring.current()
            if new_key:
                _log.info("key_made", key=current)
            total, stale = await self._keys.count(current)
            yield Progress(current, total - stale, total)
            while rows := await self._keys.some(current, _BATCH):
                renewed = await self._rewrap(rows)
                if not renewed:
                    raise DroverError(
                        Reason.INTERNAL,
                        f"{stale} stored keys do not open, and stay as they are: "
                        "the service's log names them",
                    )
                await self._keys.rewrapped(renewed)
                total, stale = await self._keys.count(current)
                yield Progress(current, total - stale, total)
            _log.info("keys_rewrapped", key=current, keys=total)

    async def _rewrap(self, rows: Sequence[WrappedRow]) -> list[tuple[WrappedRow, WrappedKey]]:
        renewed = []
        for row in rows:
            try:
                key = await self._keyring.rewrap(row.key, place_of(row).key_context)
            except DroverError as error:
                if error.reason is not Reason.INTERNAL:
                    raise
                # One that was tampered with, or whose key is lost, holds up no other.
                _log.error("key_not_rewrapped", kind=row.kind, id=row.id, key=row.key.key)
            else:
                renewed.append((row, key))
        return renewed
