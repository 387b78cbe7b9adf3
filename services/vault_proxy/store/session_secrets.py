"""Secrets of sessions' resources in SQL, sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, func, select, text, update

from services.vault_proxy.domain.sealed import Sealed, WrappedKey
from services.vault_proxy.store.tables import SESSION_SECRETS
from services.vault_proxy.store.vaults import overwriting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from services.vault_proxy.domain.vault_ports import SessionSecretRow
    from storage import Database

_S = SESSION_SECRETS.c

_PUT = text(
    "INSERT INTO session_secrets (session_id, resource_id, workspace_id, ask_at, wrapped_with,"
    " wrapped_key, ciphertext) VALUES (:session_id, :resource_id, :workspace_id, :ask_at,"
    " :wrapped_with, :wrapped_key, :ciphertext) ON CONFLICT (session_id, resource_id) DO UPDATE SET"
    " ask_at = excluded.ask_at, wrapped_with = excluded.wrapped_with,"
    " wrapped_key = excluded.wrapped_key, ciphertext = excluded.ciphertext"
    " WHERE session_secrets.workspace_id = excluded.workspace_id"
)


class SqlSessionSecretStore:
    """Implements `SessionSecretStore`. The last writer of a secret wins."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, row: SessionSecretRow, ask_at: int) -> None:
        """Keeps a secret in place of an earlier one, unless another workspace has that."""
        values = {
            "session_id": row.session_id,
            "resource_id": row.resource_id,
            "workspace_id": row.workspace_id,
            "ask_at": ask_at,
            "wrapped_with": row.sealed.key.key,
            "wrapped_key": row.sealed.key.blob,
            "ciphertext": row.sealed.ciphertext,
        }

        def write(connection: Connection) -> None:
            overwriting(connection)
            connection.execute(_PUT, values).close()

        await self._database.write(write)

    async def get(self, workspace_id: str, session_id: str, resource_id: str) -> Sealed | None:
        """The secret, if there is one."""
        query = select(_S.wrapped_with, _S.wrapped_key, _S.ciphertext).where(
            _S.session_id == session_id,
            _S.resource_id == resource_id,
            _S.workspace_id == workspace_id,
        )

        def read(connection: Connection) -> Sealed | None:
            found = connection.execute(query).one_or_none()
            return None if found is None else Sealed(WrappedKey(found[0], found[1]), found[2])

        return await self._database.read(read)

    async def forget(self, workspace_id: str, session_id: str, resource_id: str = "") -> None:
        """Removes a resource's secret, or all of a session's."""
        statement = delete(SESSION_SECRETS).where(
            _S.session_id == session_id, _S.workspace_id == workspace_id
        )
        if resource_id:
            statement = statement.where(_S.resource_id == resource_id)

        def write(connection: Connection) -> None:
            overwriting(connection)
            connection.execute(statement)

        await self._database.write(write)

    async def due(self, now: int, limit: int) -> Sequence[tuple[str, str]]:
        """Workspaces and ids of sessions to be asked for, those first that are due for longest."""
        query = (
            select(_S.workspace_id, _S.session_id)
            .where(_S.ask_at <= now)
            .group_by(_S.workspace_id, _S.session_id)
            .order_by(func.min(_S.ask_at))
            .limit(limit)
        )

        def read(connection: Connection) -> list[tuple[str, str]]:
            return [(row.workspace_id, row.session_id) for row in connection.execute(query)]

        return await self._database.read(read)

    async def ask_again(self, workspace_id: str, session_id: str, at: int) -> None:
        """Has a session be asked for at a later time."""
        statement = (
            update(SESSION_SECRETS)
            .where(_S.session_id == session_id, _S.workspace_id == workspace_id)
            .values(ask_at=at)
        )
        await self._database.write(lambda connection: connection.execute(statement).close())
