"""VaultKeyService: rotation, as operators start it."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

from drover.vault.v1 import vault_key_service_pb2 as pb
from drover.vault.v1.vault_key_service_pb2_grpc import VaultKeyServiceServicer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from services.vault_proxy.crypto.keyring import Keyring
    from services.vault_proxy.domain.vault_ports import WrappedKeys
    from services.vault_proxy.vault.rotation import Rotation


class KeyRpc(VaultKeyServiceServicer):
    """Serves what is known of keys: names and numbers."""

    def __init__(self, rotation: Rotation, keys: WrappedKeys, keyring: Keyring) -> None:
        self._rotation = rotation
        self._keys = keys
        self._keyring = keyring

    async def RotateKeys(
        self, request: pb.RotateKeysRequest, _context: object
    ) -> AsyncIterator[pb.RotateKeysResponse]:
        """Wraps every stored key anew, and tells how far it is."""
        async for progress in self._rotation.run(new_key=request.new_key):
            yield pb.RotateKeysResponse(
                key_name=progress.key, done=progress.done, total=progress.total
            )

    async def GetKeys(self, _request: pb.GetKeysRequest, _context: object) -> pb.GetKeysResponse:
        """Which keys are in use."""
        current = await self._keyring.current()
        total, stale = await self._keys.count(current)
        return pb.GetKeysResponse(key_name=current, total=total, stale=stale)
