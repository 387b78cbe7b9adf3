"""Every wrapped key of the database: the installation's own, and those of all secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from services.vault_proxy.domain.sealed import (
    CREDENTIAL,
    INSTALLATION_ID,
    INSTALLATION_KEY,
    SESSION_SECRET,
    WrappedKey,
)
from services.vault_proxy.domain.vault_ports import WrappedRow
from services.vault_proxy.store.tables import CREDENTIALS, INSTALLATION, SESSION_SECRETS
from services.vault_proxy.store.vaults import overwriting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Select, Table

    from storage import Database

_I, _C, _S = INSTALLATION.c, CREDENTIALS.c, SESSION_SECRETS.c

# By kind: the table, and which columns say what a secret belongs to.
_PLACES: Final[dict[str, tuple[Table, Any, Any, Any]]] = {
    INSTALLATION_KEY: (INSTALLATION, literal(""), literal(""), _I.id),
    CREDENTIAL: (CREDENTIALS, _C.workspace_id, _C.vault_id, _C.id),
    SESSION_SECRET: (SESSION_SECRETS, _S.workspace_id, _S.session_id, _S.resource_id),
}


class SqlWrappedKeys:
    """Implements `WrappedKeys` and `InstallationKeys`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> WrappedKey | None:
        """The installation's key, once there is one."""
        return await self._database.read(installation_row)

    async def keep(self, key: WrappedKey) -> WrappedKey:
        """Keeps the installation's key where there is none yet; answers the one that is kept."""
        statement = insert(INSTALLATION).values(
            id=INSTALLATION_ID, wrapped_with=key.key, wrapped_key=key.blob
        )

        def write(connection: Connection) -> WrappedKey:
            # Fence: the primary key; another replica may have been first.
            connection.execute(statement)
            return key

        try:
            return await self._database.write(write)
        except IntegrityError:
            kept = await self.load()
            if kept is None:
                raise
            return kept

    async def count(self, current: str) -> tuple[int, int]:
        """How many there are, and how many of them are not wrapped with `current`."""

        def read(connection: Connection) -> tuple[int, int]:
            total = stale = 0
            for table, *_ in _PLACES.values():
                wrapped = select(func.count()).where(table.c.wrapped_with.is_not(None))
                total += connection.execute(wrapped).scalar_one()
                other = wrapped.where(table.c.wrapped_with != current)
                stale += connection.execute(other).scalar_one()
            return total, stale

        return await self._database.read(read)

    async def some(self, current: str, limit: int) -> Sequence[WrappedRow]:
        """So many at most of those that are not wrapped with `current`."""

        def read(connection: Connection) -> list[WrappedRow]:
            rows: list[WrappedRow] = []
            for kind in _PLACES:
                if len(rows) < limit:
                    query = _stale(kind, current).limit(limit - len(rows))
                    rows.extend(_row(kind, [*found]) for found in connection.execute(query))
            return rows

        return await self._database.read(read)

    async def rewrapped(self, rows: Sequence[tuple[WrappedRow, WrappedKey]]) -> None:
        """Keeps new wrappings, each only where the old one is still there."""

        def write(connection: Connection) -> None:
            overwriting(connection)  # what an older key opens is to go with it
            for row, key in rows:
                table, workspace, owner, ident = _PLACES[row.kind]
                # Fence: a secret that was replaced meanwhile has another wrapped key.
                connection.execute(
                    update(table)
                    .where(
                        ident == row.id,
                        workspace == row.workspace_id,
                        owner == row.owner_id,
                        table.c.wrapped_key == row.key.blob,
                    )
                    .values(wrapped_with=key.key, wrapped_key=key.blob)
                )

        await self._database.write(write)


def _stale(kind: str, current: str) -> Select[Any]:
    table, *place = _PLACES[kind]
    columns = (*place, table.c.wrapped_with, table.c.wrapped_key)
    return select(*columns).where(table.c.wrapped_with != current)


def _row(kind: str, found: Sequence[Any]) -> WrappedRow:
    workspace_id, owner_id, ident, key, blob = found
    return WrappedRow(kind, workspace_id, owner_id, ident, WrappedKey(key, blob))


def installation_row(connection: Connection) -> WrappedKey | None:
    """The installation's key, once there is one."""
    query = select(_I.wrapped_with, _I.wrapped_key).where(_I.id == INSTALLATION_ID)
    found = connection.execute(query).one_or_none()
    return None if found is None else WrappedKey(found[0], found[1])
