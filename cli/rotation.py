"""`drover vault rotate`: the vault proxy does it; this shows how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.transfer.service import TransferError
from drover.vault.v1.vault_key_service_pb2 import RotateKeysRequest
from drover.vault.v1.vault_key_service_pb2_grpc import VaultKeyServiceStub

if TYPE_CHECKING:
    from cli.terminal import Terminal
    from cli.transfer.service import ServiceTarget

_SECONDS = 3_600.0


def rotate(target: ServiceTarget, out: Terminal, *, new_key: bool) -> None:
    """Rotates, and says how far it is. Raises `TransferError`."""
    last = None
    with target.channel() as channel:
        asked = VaultKeyServiceStub(channel).RotateKeys(
            RotateKeysRequest(new_key=new_key), metadata=target.identity, timeout=_SECONDS
        )
        for last in asked:
            out.say(f"{last.done:,} of {last.total:,} keys are wrapped with {last.key_name}")
    if last is None:
        msg = "the vault proxy said nothing of its keys"
        raise TransferError(msg)
