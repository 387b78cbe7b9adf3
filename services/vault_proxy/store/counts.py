"""How much is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from services.vault_proxy.store.tables import CREDENTIALS, VAULTS

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from storage import Database

_COUNTS: Final = select(
    select(func.count())
    .select_from(VAULTS)
    .where(VAULTS.c.archived_at.is_(None))
    .scalar_subquery(),
    select(func.count())
    .select_from(CREDENTIALS)
    .where(CREDENTIALS.c.archived_at.is_(None))
    .scalar_subquery(),
)


class SqlCounts:
    """Counts vaults and credentials."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def held(self) -> tuple[int, int]:
        """Vaults and credentials that are not archived, of all workspaces."""

        def read(connection: Connection) -> tuple[int, int]:
            vaults, credentials = connection.execute(_COUNTS).one()
            return int(vaults), int(credentials)

        return await self._database.read(read)
