"""What vaults need of a store. Every call is scoped to one workspace.

A call with a `once` has its effect once, as in `catalogue.resources.once`: its repetition is
answered as the first was. One contract suite (tests/contract/vault_proxy) runs over every
implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from catalogue.resources.once import Once
from catalogue.resources.paging import Position
from chassis.errors import DroverError
from drover.vault.v1.credential_pb2 import Credential
from drover.vault.v1.vault_pb2 import Vault
from services.vault_proxy.domain.sealed import Sealed, WrappedKey


@dataclass(frozen=True, slots=True)
class Listing:
    """Which part of a list is asked for, newest first; `after` is the last item already seen."""

    limit: int
    after: Position | None = None
    include_archived: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A credential as it is stored. `sealed` is `None` once its secret is purged.

    `revision` grows with each change that was made since it was created.
    """

    credential: Credential
    sealed: Sealed | None
    revision: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a credential is to become. `sealed` is `None` where its secrets stay as they are."""

    credential: Credential
    sealed: Sealed | None


class StaleError(Exception):
    """The credential was changed since it was read."""


class VaultStore(Protocol):
    """Vaults."""

    async def add(self, workspace_id: str, vault: Vault, once: Once[Vault] | None = None) -> Vault:
        """Keeps a new vault, and answers it; durable on return."""
        ...

    async def get(self, workspace_id: str, vault_id: str) -> Vault:
        """Raises NOT_FOUND."""
        ...

    async def revise(
        self,
        workspace_id: str,
        vault_id: str,
        change: Callable[[Vault], Vault],
        once: Once[Vault] | None = None,
    ) -> Vault:
        """Keeps what `change` makes of the vault, and answers it; durable on return.

        `change` runs on another thread, is pure, and answers its argument to say that there is
        nothing to keep; what it raises is raised here. Raises NOT_FOUND.
        """
        ...

    async def archive(
        self, workspace_id: str, vault_id: str, at: datetime, once: Once[Vault] | None = None
    ) -> Vault:
        """Archives the vault and its credentials for good, and purges their secrets.

        What is archived keeps its time. Raises NOT_FOUND.
        """
        ...

    async def delete(self, workspace_id: str, vault_id: str, once: Once[str] | None = None) -> None:
        """Deletes the vault and its credentials; a `once` is given its id. Raises NOT_FOUND."""
        ...

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Vault]:
        """Vaults, newest first."""
        ...

    async def check(self, workspace_id: str, vault_ids: Sequence[str]) -> None:
        """Raises NOT_FOUND for the first that is unknown, ARCHIVED for the first that is archived.

        Unknown ones come first.
        """
        ...


class CredentialStore(Protocol):
    """Credentials of vaults. No two active ones of a vault share a key."""

    async def add(
        self,
        workspace_id: str,
        credential: Credential,
        sealed: Sealed,
        once: Once[Credential] | None = None,
    ) -> Credential:
        """Keeps a new credential, and answers it; durable on return.

        Raises NOT_FOUND and ARCHIVED for its vault, ALREADY_EXISTS for a taken key, and
        INVALID_ARGUMENT for one too many.
        """
        ...

    async def load(self, workspace_id: str, vault_id: str, credential_id: str) -> Record:
        """The credential and its sealed secrets. Raises NOT_FOUND."""
        ...

    async def replace(
        self,
        workspace_id: str,
        read: Record,
        outcome: Replacement | DroverError,
        once: Once[Credential] | None = None,
    ) -> Credential:
        """Keeps what became of `read`, or raises the error that it led to; durable on return.

        Both only where the credential is still as it was read: raises `StaleError`, or NOT_FOUND.
        """
        ...

    async def archive(
        self,
        workspace_id: str,
        vault_id: str,
        credential_id: str,
        at: datetime,
        once: Once[Credential] | None = None,
    ) -> Credential:
        """Archives for good, purges the secrets and frees the key; an archived one keeps its time.

        Raises NOT_FOUND.
        """
        ...

    async def delete(
        self, workspace_id: str, vault_id: str, credential_id: str, once: Once[str] | None = None
    ) -> None:
        """Deletes the credential; a `once` is given its id. Raises NOT_FOUND."""
        ...

    async def page(
        self, workspace_id: str, vault_id: str, listing: Listing
    ) -> Sequence[Credential]:
        """Credentials of a vault, newest first. Raises NOT_FOUND for the vault."""
        ...

    async def live(self, workspace_id: str, vault_ids: Sequence[str]) -> Sequence[Record]:
        """All that is active in the vaults, in their order, and in each by age."""
        ...

    async def revision(self, workspace_id: str) -> int:
        """Grows with every change of the workspace's vaults and credentials, by any replica."""
        ...


@dataclass(frozen=True, slots=True)
class WrappedRow:
    """A wrapped key of some stored secret, and what it belongs to (`crypto.envelope.Place`)."""

    kind: str
    workspace_id: str
    owner_id: str
    id: str
    key: WrappedKey


class WrappedKeys(Protocol):
    """All wrapped keys that are stored: what a rotation goes through."""

    async def count(self, current: str) -> tuple[int, int]:
        """How many there are, and how many of them are not wrapped with `current`."""
        ...

    async def some(self, current: str, limit: int) -> Sequence[WrappedRow]:
        """So many at most of those that are not wrapped with `current`."""
        ...

    async def rewrapped(self, rows: Sequence[tuple[WrappedRow, WrappedKey]]) -> None:
        """Keeps new wrappings, each only where the old one is still there; durable on return."""
        ...


class InstallationKeys(Protocol):
    """The one key that keys of the installation are derived from, wrapped."""

    async def load(self) -> WrappedKey | None:
        """The key, once there is one."""
        ...

    async def keep(self, key: WrappedKey) -> WrappedKey:
        """Keeps it where there is none yet; answers the one that is kept."""
        ...


@dataclass(frozen=True, slots=True)
class SessionSecretRow:
    """A sealed secret of a session's resource."""

    workspace_id: str
    session_id: str
    resource_id: str
    sealed: Sealed


class SessionSecretStore(Protocol):
    """Sealed secrets of sessions' resources."""

    async def put(self, row: SessionSecretRow, ask_at: int) -> None:
        """Keeps a secret in place of an earlier one; durable on return."""
        ...

    async def get(self, workspace_id: str, session_id: str, resource_id: str) -> Sealed | None:
        """The secret, if there is one."""
        ...

    async def forget(self, workspace_id: str, session_id: str, resource_id: str = "") -> None:
        """Removes a resource's secret, or all of a session's."""
        ...

    async def due(self, now: int, limit: int) -> Sequence[tuple[str, str]]:
        """Workspaces and ids of so many sessions at most whose existence is to be asked for."""
        ...

    async def ask_again(self, workspace_id: str, session_id: str, at: int) -> None:
        """Has a session be asked for at a later time."""
        ...
