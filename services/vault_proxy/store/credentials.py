"""Credentials in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, Select, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalogue.resources.stamps import micros
from chassis.errors import DroverError
from drover.vault.v1.credential_pb2 import Credential
from services.vault_proxy.domain.credential import (
    MAX_CREDENTIALS,
    key_of,
    key_taken,
    vault_full,
)
from services.vault_proxy.domain.missing import no_credential, vault_archived
from services.vault_proxy.domain.sealed import Sealed, WrappedKey
from services.vault_proxy.domain.vault_ports import Record, Replacement, StaleError
from services.vault_proxy.store.changes import changes, count_change
from services.vault_proxy.store.pages import newest
from services.vault_proxy.store.tables import CREDENTIALS
from services.vault_proxy.store.vaults import PURGED, load_vault, overwriting
from storage.answers import withdraw
from storage.once import Answers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from services.vault_proxy.domain.vault_ports import Listing
    from storage import Database

_C = CREDENTIALS.c


class SqlCredentialStore:
    """Implements `CredentialStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._answers = Answers(database, clock)

    async def add(
        self,
        workspace_id: str,
        credential: Credential,
        sealed: Sealed,
        once: Once[Credential] | None = None,
    ) -> Credential:
        """Keeps a new credential. Raises NOT_FOUND, ARCHIVED, ALREADY_EXISTS, INVALID_ARGUMENT."""
        key = key_of(credential)
        statement = insert(CREDENTIALS).values(
            id=credential.id,
            vault_id=credential.vault_id,
            workspace_id=workspace_id,
            key=key,
            created_at=micros(credential.created_at),
            revision=1,
            definition=credential.SerializeToString(),
            **_columns(sealed),
        )
        active = (_C.vault_id == credential.vault_id, _C.archived_at.is_(None))
        held = select(_C.key).where(*active)

        def write(connection: Connection) -> Credential:
            # Fence: the vault's row is locked until the credential is there.
            vault = load_vault(connection, workspace_id, credential.vault_id, lock=True)
            if vault.HasField("archived_at"):
                raise vault_archived(vault.id)
            keys = {found for (found,) in connection.execute(held)}
            if key in keys:
                raise key_taken(credential)
            if len(keys) >= MAX_CREDENTIALS:
                raise vault_full()
            try:
                connection.execute(statement)
            except IntegrityError:
                raise key_taken(credential) from None
            count_change(connection, workspace_id)
            return credential

        return await self._answers.write(write, once, credential.id)

    async def load(self, workspace_id: str, vault_id: str, credential_id: str) -> Record:
        """The credential and its sealed secrets. Raises NOT_FOUND."""

        def read(connection: Connection) -> Record:
            return _load(connection, workspace_id, vault_id, credential_id)

        return await self._database.read(read)

    async def replace(
        self,
        workspace_id: str,
        read: Record,
        outcome: Replacement | DroverError,
        once: Once[Credential] | None = None,
    ) -> Credential:
        """Keeps what became of `read`. Raises `StaleError`, NOT_FOUND, and the outcome's error."""
        stored = read.credential

        def write(connection: Connection) -> Credential:
            found = _load(connection, workspace_id, stored.vault_id, stored.id, lock=True)
            # Fence: the revision that was read, of a row that is locked.
            if found.revision != read.revision:
                raise StaleError
            if isinstance(outcome, DroverError):
                raise outcome
            if outcome.sealed is None and outcome.credential == stored:
                return stored
            values: dict[str, Any] = {
                "definition": _definition(outcome.credential),
                "revision": found.revision + 1,
            }
            if outcome.sealed is not None:
                overwriting(connection)
                values |= _columns(outcome.sealed)
            connection.execute(update(CREDENTIALS).where(_C.id == stored.id).values(values))
            count_change(connection, workspace_id)
            return outcome.credential

        return await self._answers.write(write, once, stored.id)

    async def archive(
        self,
        workspace_id: str,
        vault_id: str,
        credential_id: str,
        at: datetime,
        once: Once[Credential] | None = None,
    ) -> Credential:
        """Archives for good, purges the secrets and frees the key. Raises NOT_FOUND."""

        def write(connection: Connection) -> Credential:
            found = _load(connection, workspace_id, vault_id, credential_id, lock=True)
            if found.credential.HasField("archived_at"):
                return found.credential
            overwriting(connection)
            # Fence: the row is locked since it was read.
            connection.execute(
                update(CREDENTIALS)
                .where(_C.id == credential_id)
                .values(archived_at=micros(at), revision=found.revision + 1, **PURGED)
            )
            count_change(connection, workspace_id)
            return _load(connection, workspace_id, vault_id, credential_id).credential

        return await self._answers.write(write, once, credential_id)

    async def delete(
        self, workspace_id: str, vault_id: str, credential_id: str, once: Once[str] | None = None
    ) -> None:
        """Deletes the credential. Raises NOT_FOUND."""
        statement = delete(CREDENTIALS).where(
            _C.id == credential_id, _C.vault_id == vault_id, _C.workspace_id == workspace_id
        )

        def write(connection: Connection) -> str:
            overwriting(connection)
            if connection.execute(statement).rowcount == 0:
                load_vault(connection, workspace_id, vault_id)  # the vault's own absence first
                raise no_credential(credential_id)
            withdraw(connection, credential_id)
            count_change(connection, workspace_id)
            return credential_id

        await self._answers.write(write, once)

    async def page(
        self, workspace_id: str, vault_id: str, listing: Listing
    ) -> Sequence[Credential]:
        """Credentials of a vault, newest first. Raises NOT_FOUND for the vault."""
        query = newest(_rows().where(_C.vault_id == vault_id), CREDENTIALS, listing)

        def read(connection: Connection) -> Sequence[Credential]:
            load_vault(connection, workspace_id, vault_id)
            return [_record(found).credential for found in connection.execute(query)]

        return await self._database.read(read)

    async def live(self, workspace_id: str, vault_ids: Sequence[str]) -> Sequence[Record]:
        """All that is active in the vaults, in their order, and in each by age."""
        order = {vault_id: place for place, vault_id in reversed([*enumerate(vault_ids)])}
        query = (
            _rows()
            .where(
                _C.workspace_id == workspace_id,
                _C.vault_id.in_(order),
                _C.archived_at.is_(None),
            )
            .order_by(_C.created_at, _C.id)
        )

        def read(connection: Connection) -> list[Record]:
            return [_record(found) for found in connection.execute(query)]

        records = await self._database.read(read)
        return sorted(records, key=lambda record: order[record.credential.vault_id])

    async def revision(self, workspace_id: str) -> int:
        """Grows with every change of the workspace's vaults and credentials."""
        return await self._database.read(lambda connection: changes(connection, workspace_id))


def _rows() -> Select[Any]:
    return select(
        _C.definition,
        _C.archived_at,
        _C.revision,
        _C.wrapped_with,
        _C.wrapped_key,
        _C.ciphertext,
    )


def _load(
    connection: Connection,
    workspace_id: str,
    vault_id: str,
    credential_id: str,
    *,
    lock: bool = False,
) -> Record:
    query = _rows().where(
        _C.id == credential_id, _C.vault_id == vault_id, _C.workspace_id == workspace_id
    )
    found = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if found is None:
        load_vault(connection, workspace_id, vault_id)  # the vault's own absence first
        raise no_credential(credential_id)
    return _record(found)


def _record(found: Row[Any]) -> Record:
    credential = Credential.FromString(found.definition)
    if found.archived_at is not None:
        credential.archived_at.FromMicroseconds(found.archived_at)
    sealed = None
    if found.wrapped_with is not None:
        sealed = Sealed(WrappedKey(found.wrapped_with, found.wrapped_key), found.ciphertext)
    return Record(credential, sealed, found.revision)


def _definition(credential: Credential) -> bytes:
    kept = Credential()
    kept.CopyFrom(credential)
    kept.ClearField("archived_at")  # the column's
    return kept.SerializeToString()


def _columns(sealed: Sealed) -> dict[str, Any]:
    return {
        "wrapped_with": sealed.key.key,
        "wrapped_key": sealed.key.blob,
        "ciphertext": sealed.ciphertext,
    }
