"""Vaults in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from catalogue.resources.once import Once
from catalogue.resources.stamps import micros
from chassis.clock import Clock
from drover.vault.v1.vault_pb2 import Vault
from services.vault_proxy.domain.missing import no_vault, refuse_unusable
from services.vault_proxy.domain.vault_ports import Listing
from services.vault_proxy.store.changes import count_change
from services.vault_proxy.store.pages import newest
from services.vault_proxy.store.tables import CREDENTIALS, VAULTS
from storage import Database
from storage.answers import withdraw
from storage.once import Answers

Found = Row[tuple[bytes, int | None]]

_V, _C = VAULTS.c, CREDENTIALS.c


class SqlVaultStore:
    """Implements `VaultStore`. A vault's row is the fence for it and for new credentials."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._answers = Answers(database, clock)

    async def add(self, workspace_id: str, vault: Vault, once: Once[Vault] | None = None) -> Vault:
        """Keeps a new vault."""
        statement = insert(VAULTS).values(
            id=vault.id,
            workspace_id=workspace_id,
            created_at=micros(vault.created_at),
            definition=vault.SerializeToString(),
        )

        def write(connection: Connection) -> Vault:
            connection.execute(statement)
            return vault

        return await self._answers.write(write, once, vault.id)

    async def get(self, workspace_id: str, vault_id: str) -> Vault:
        """Raises NOT_FOUND."""

        def read(connection: Connection) -> Vault:
            return load_vault(connection, workspace_id, vault_id)

        return await self._database.read(read)

    async def revise(
        self,
        workspace_id: str,
        vault_id: str,
        change: Callable[[Vault], Vault],
        once: Once[Vault] | None = None,
    ) -> Vault:
        """Keeps what `change` makes of it. Raises NOT_FOUND."""

        def write(connection: Connection) -> Vault:
            stored = load_vault(connection, workspace_id, vault_id, lock=True)
            changed = change(stored)
            if changed is not stored:
                # Fence: the row is locked since it was read.
                connection.execute(
                    update(VAULTS)
                    .where(_V.id == vault_id)
                    .values(definition=changed.SerializeToString())
                )
            return changed

        return await self._answers.write(write, once, vault_id)

    async def archive(
        self, workspace_id: str, vault_id: str, at: datetime, once: Once[Vault] | None = None
    ) -> Vault:
        """Archives with all credentials, and purges their secrets. Raises NOT_FOUND."""

        def write(connection: Connection) -> Vault:
            stored = load_vault(connection, workspace_id, vault_id, lock=True)
            if stored.HasField("archived_at"):
                return stored
            overwriting(connection)
            # Fence: the row is locked since it was read; new credentials wait for it.
            connection.execute(
                update(VAULTS).where(_V.id == vault_id).values(archived_at=micros(at))
            )
            connection.execute(
                update(CREDENTIALS)
                .where(_C.vault_id == vault_id, _C.archived_at.is_(None))
                .values(archived_at=micros(at), revision=_C.revision + 1, **PURGED)
            )
            count_change(connection, workspace_id)
            return load_vault(connection, workspace_id, vault_id)

        return await self._answers.write(write, once, vault_id)

    async def delete(self, workspace_id: str, vault_id: str, once: Once[str] | None = None) -> None:
        """Deletes with all credentials. Raises NOT_FOUND."""
        inside = select(_C.id).where(_C.vault_id == vault_id)

        def write(connection: Connection) -> str:
            load_vault(connection, workspace_id, vault_id, lock=True)
            overwriting(connection)
            for (credential_id,) in connection.execute(inside).all():
                withdraw(connection, credential_id)
            connection.execute(delete(VAULTS).where(_V.id == vault_id))  # the others by the cascade
            withdraw(connection, vault_id)
            count_change(connection, workspace_id)
            return vault_id

        await self._answers.write(write, once)

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Vault]:
        """Vaults, newest first."""
        query = newest(_rows().where(_V.workspace_id == workspace_id), VAULTS, listing)

        def read(connection: Connection) -> Sequence[Vault]:
            return [_vault(found) for found in connection.execute(query)]

        return await self._database.read(read)

    async def check(self, workspace_id: str, vault_ids: Sequence[str]) -> None:
        """Raises NOT_FOUND for an unknown one, ARCHIVED for an archived one."""
        query = select(_V.id, _V.archived_at).where(
            _V.workspace_id == workspace_id, _V.id.in_(vault_ids)
        )

        def read(connection: Connection) -> dict[str, int | None]:
            return {row.id: row.archived_at for row in connection.execute(query)}

        found = await self._database.read(read)
        refuse_unusable(found, vault_ids)


PURGED = {"wrapped_with": None, "wrapped_key": None, "ciphertext": None}
"""A credential's columns once its secret is gone."""


def overwriting(connection: Connection) -> None:
    """Before sealed secrets are removed or replaced: SQLite is not to leave them in the file."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")


def _rows() -> Select[tuple[bytes, int | None]]:
    return select(_V.definition, _V.archived_at)


def load_vault(
    connection: Connection, workspace_id: str, vault_id: str, *, lock: bool = False
) -> Vault:
    """A vault as it is stored. Raises NOT_FOUND."""
    query = _rows().where(_V.id == vault_id, _V.workspace_id == workspace_id)
    found = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if found is None:
        raise no_vault(vault_id)
    return _vault(found)


def _vault(found: Found) -> Vault:
    vault = Vault.FromString(found.definition)
    if found.archived_at is not None:
        vault.archived_at.FromMicroseconds(found.archived_at)
    return vault
