"""The safe: what is written to vaults, with its secrets sealed before anything is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason
from services.vault_proxy.domain.vault_ports import Record, Replacement, StaleError
from services.vault_proxy.vault.places import credential_place, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from catalogue.resources.once import Once
    from chassis.secret import Secret
    from drover.vault.v1.credential_pb2 import Credential
    from services.vault_proxy.crypto.envelope import Envelopes
    from services.vault_proxy.domain.credential import Written
    from services.vault_proxy.domain.sealed import Sealed
    from services.vault_proxy.domain.vault_ports import CredentialStore
    from services.vault_proxy.vault.holdings import Holdings

_TRIES = 8


class Safe:
    """Writes credentials, and has who uses them know at once."""

    def __init__(self, store: CredentialStore, envelopes: Envelopes, holdings: Holdings) -> None:
        self._store = store
        self._envelopes = envelopes
        self._holdings = holdings

    async def add(
        self, workspace_id: str, written: Written, once: Once[Credential] | None
    ) -> Credential:
        """Keeps a new credential. Raises as `CredentialStore.add`, and UNAVAILABLE."""
        place = credential_place(workspace_id, written.credential)
        sealed = await self._envelopes.seal(packed(written.secrets), place)
        with self._holdings.changing():
            return await self._store.add(workspace_id, written.credential, sealed, once)

    async def revise(  # what names a credential, and what becomes of it
        self,
        workspace_id: str,
        vault_id: str,
        credential_id: str,
        change: Callable[[Credential], Written],
        once: Once[Credential] | None = None,
    ) -> Credential:
        """Keeps what `change` makes of a credential; nothing else changes it meanwhile.

        Raises NOT_FOUND, UNAVAILABLE, and what `change` raises.
        """
        for _ in range(_TRIES):
            read = await self._store.load(workspace_id, vault_id, credential_id)
            outcome: Replacement | DroverError
            try:
                outcome = await self.replacement(workspace_id, read, change(read.credential))
            except DroverError as error:
                outcome = error  # raised by the store: a repetition is answered as it was before
            try:
                with self._holdings.changing():
                    return await self._store.replace(workspace_id, read, outcome, once)
            except StaleError:
                continue
        raise DroverError(
            Reason.CONFLICT, f"credential {credential_id} is being changed: try again"
        )

    async def replacement(self, workspace_id: str, read: Record, written: Written) -> Replacement:
        """What is to be stored: secrets that stay are sealed anew for what they are bound to."""
        before = credential_place(workspace_id, read.credential)
        after = credential_place(workspace_id, written.credential)
        if not written.secrets and before == after:
            return Replacement(written.credential, None)
        secrets: dict[str, Secret] = {}
        if read.sealed is not None:
            secrets = unpacked(await self._envelopes.open(read.sealed, before))
        secrets |= written.secrets
        sealed: Sealed = await self._envelopes.seal(packed(secrets), after)
        return Replacement(written.credential, sealed)

    async def archive(
        self,
        workspace_id: str,
        vault_id: str,
        credential_id: str,
        at: datetime,
        once: Once[Credential] | None,
    ) -> Credential:
        """Archives for good and purges the secrets. Raises NOT_FOUND."""
        with self._holdings.changing():
            return await self._store.archive(workspace_id, vault_id, credential_id, at, once)

    async def delete(
        self, workspace_id: str, vault_id: str, credential_id: str, once: Once[str] | None
    ) -> None:
        """Deletes. Raises NOT_FOUND."""
        with self._holdings.changing():
            await self._store.delete(workspace_id, vault_id, credential_id, once)
