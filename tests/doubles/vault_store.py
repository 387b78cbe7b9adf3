"""In-memory stores of vaults; the contract suite holds them to what the real ones do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from catalogue.resources.stamps import micros
from chassis.errors import DroverError
from drover.vault.v1.credential_pb2 import Credential
from drover.vault.v1.vault_pb2 import Vault
from services.vault_proxy.domain.credential import MAX_CREDENTIALS, key_of, key_taken, vault_full
from services.vault_proxy.domain.missing import (
    no_credential,
    no_vault,
    refuse_unusable,
    vault_archived,
)
from services.vault_proxy.domain.vault_ports import Record, Replacement, StaleError
from tests.doubles.answers import MemoryAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from services.vault_proxy.domain.sealed import Sealed
    from services.vault_proxy.domain.vault_ports import Listing

T = TypeVar("T", Vault, Credential)


@dataclass
class MemoryVaults:
    """What both stores share."""

    clock: Clock
    vaults: dict[tuple[str, str], Vault] = field(default_factory=dict)
    credentials: dict[tuple[str, str, str], Record] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answers = MemoryAnswers(self.clock)

    def vault(self, workspace_id: str, vault_id: str) -> Vault:
        found = self.vaults.get((workspace_id, vault_id))
        if found is None:
            raise no_vault(vault_id)
        return _vault(found)

    def count(self, workspace_id: str) -> None:
        self.revisions[workspace_id] = self.revisions.get(workspace_id, 0) + 1

    def of_vault(self, vault_id: str) -> list[tuple[tuple[str, str, str], Record]]:
        return [(key, record) for key, record in self.credentials.items() if key[1] == vault_id]


class MemoryVaultStore:
    """Implements `VaultStore`."""

    def __init__(self, shared: MemoryVaults) -> None:
        self._shared = shared

    async def add(self, workspace_id: str, vault: Vault, once: Once[Vault] | None = None) -> Vault:
        def write() -> Vault:
            self._shared.vaults[workspace_id, vault.id] = _vault(vault)
            return vault

        return self._shared.answers.write(write, once, vault.id)

    async def get(self, workspace_id: str, vault_id: str) -> Vault:
        return self._shared.vault(workspace_id, vault_id)

    async def revise(
        self,
        workspace_id: str,
        vault_id: str,
        change: Callable[[Vault], Vault],
        once: Once[Vault] | None = None,
    ) -> Vault:
        def write() -> Vault:
            changed = change(self._shared.vault(workspace_id, vault_id))
            self._shared.vaults[workspace_id, vault_id] = _vault(changed)
            return changed

        return self._shared.answers.write(write, once, vault_id)

    async def archive(
        self, workspace_id: str, vault_id: str, at: datetime, once: Once[Vault] | None = None
    ) -> Vault:
        def write() -> Vault:
            vault = self._shared.vault(workspace_id, vault_id)
            if vault.HasField("archived_at"):
                return vault
            vault.archived_at.FromDatetime(at)
            self._shared.vaults[workspace_id, vault_id] = _vault(vault)
            for key, record in self._shared.of_vault(vault_id):
                if not record.credential.HasField("archived_at"):
                    self._shared.credentials[key] = _purged(record, at)
            self._shared.count(workspace_id)
            return vault

        return self._shared.answers.write(write, once, vault_id)

    async def delete(self, workspace_id: str, vault_id: str, once: Once[str] | None = None) -> None:
        def write() -> str:
            self._shared.vault(workspace_id, vault_id)
            del self._shared.vaults[workspace_id, vault_id]
            for key, record in self._shared.of_vault(vault_id):
                del self._shared.credentials[key]
                self._shared.answers.withdraw(record.credential.id)
            self._shared.answers.withdraw(vault_id)
            self._shared.count(workspace_id)
            return vault_id

        self._shared.answers.write(write, once)

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Vault]:
        mine = [vault for (where, _), vault in self._shared.vaults.items() if where == workspace_id]
        return [_vault(vault) for vault in _page(mine, listing)]

    async def check(self, workspace_id: str, vault_ids: Sequence[str]) -> None:
        archived = {
            vault.id: micros(vault.archived_at) if vault.HasField("archived_at") else None
            for (where, _), vault in self._shared.vaults.items()
            if where == workspace_id
        }
        refuse_unusable(archived, vault_ids)


class MemoryCredentialStore:
    """Implements `CredentialStore`."""

    def __init__(self, shared: MemoryVaults) -> None:
        self._shared = shared

    async def add(
        self,
        workspace_id: str,
        credential: Credential,
        sealed: Sealed,
        once: Once[Credential] | None = None,
    ) -> Credential:
        def write() -> Credential:
            vault = self._shared.vault(workspace_id, credential.vault_id)
            if vault.HasField("archived_at"):
                raise vault_archived(vault.id)
            active = [
                record.credential
                for _, record in self._shared.of_vault(vault.id)
                if record.sealed is not None
            ]
            if key_of(credential) in map(key_of, active):
                raise key_taken(credential)
            if len(active) >= MAX_CREDENTIALS:
                raise vault_full()
            key = workspace_id, vault.id, credential.id
            self._shared.credentials[key] = Record(_credential(credential), sealed, 1)
            self._shared.count(workspace_id)
            return credential

        return self._shared.answers.write(write, once, credential.id)

    async def load(self, workspace_id: str, vault_id: str, credential_id: str) -> Record:
        found = self._shared.credentials.get((workspace_id, vault_id, credential_id))
        if found is None:
            self._shared.vault(workspace_id, vault_id)
            raise no_credential(credential_id)
        return replace(found, credential=_credential(found.credential))

    async def replace(
        self,
        workspace_id: str,
        read: Record,
        outcome: Replacement | DroverError,
        once: Once[Credential] | None = None,
    ) -> Credential:
        key = workspace_id, read.credential.vault_id, read.credential.id
        found = await self.load(*key)

        def write() -> Credential:
            if found.revision != read.revision:
                raise StaleError
            if isinstance(outcome, DroverError):
                raise outcome
            if outcome.sealed is None and outcome.credential == read.credential:
                return read.credential
            sealed = outcome.sealed or found.sealed
            record = Record(_credential(outcome.credential), sealed, found.revision + 1)
            self._shared.credentials[key] = record
            self._shared.count(workspace_id)
            return outcome.credential

        return self._shared.answers.write(write, once, read.credential.id)

    async def archive(
        self,
        workspace_id: str,
        vault_id: str,
        credential_id: str,
        at: datetime,
        once: Once[Credential] | None = None,
    ) -> Credential:
        found = await self.load(workspace_id, vault_id, credential_id)

        def write() -> Credential:
            if found.credential.HasField("archived_at"):
                return found.credential
            record = _purged(found, at)
            self._shared.credentials[workspace_id, vault_id, credential_id] = record
            self._shared.count(workspace_id)
            return _credential(record.credential)

        return self._shared.answers.write(write, once, credential_id)

    async def delete(
        self, workspace_id: str, vault_id: str, credential_id: str, once: Once[str] | None = None
    ) -> None:
        def write() -> str:
            self._shared.vault(workspace_id, vault_id)
            key = workspace_id, vault_id, credential_id
            if self._shared.credentials.pop(key, None) is None:
                raise no_credential(credential_id)
            self._shared.answers.withdraw(credential_id)
            self._shared.count(workspace_id)
            return credential_id

        self._shared.answers.write(write, once)

    async def page(
        self, workspace_id: str, vault_id: str, listing: Listing
    ) -> Sequence[Credential]:
        self._shared.vault(workspace_id, vault_id)
        mine = [record.credential for _, record in self._shared.of_vault(vault_id)]
        return [_credential(credential) for credential in _page(mine, listing)]

    async def live(self, workspace_id: str, vault_ids: Sequence[str]) -> Sequence[Record]:
        found: list[Record] = []
        for vault_id in dict.fromkeys(vault_ids):
            mine = [
                replace(record, credential=_credential(record.credential))
                for key, record in self._shared.of_vault(vault_id)
                if key[0] == workspace_id and record.sealed is not None
            ]
            found.extend(sorted(mine, key=lambda record: _order(record.credential)))
        return found

    async def revision(self, workspace_id: str) -> int:
        return self._shared.revisions.get(workspace_id, 0)


def _order(item: Vault | Credential) -> tuple[int, str]:
    return micros(item.created_at), item.id


def _page(items: Iterable[T], listing: Listing) -> list[T]:
    after = listing.after and (listing.after.order, listing.after.item_id)
    wanted = [
        item
        for item in sorted(items, key=_order, reverse=True)
        if (listing.include_archived or not item.HasField("archived_at"))
        and (after is None or _order(item) < after)
    ]
    return wanted[: listing.limit]


def _purged(record: Record, at: datetime) -> Record:
    credential = _credential(record.credential)
    credential.archived_at.FromDatetime(at)
    return Record(credential, None, record.revision + 1)


def _vault(vault: Vault) -> Vault:
    return Vault.FromString(vault.SerializeToString())


def _credential(credential: Credential) -> Credential:
    return Credential.FromString(credential.SerializeToString())
