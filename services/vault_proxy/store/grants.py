"""Certificate authorities of sessions, and ended grants, in SQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, select, text, update

from catalogue.resources.stamps import micros
from services.vault_proxy.domain.grant_ports import StoredAuthority
from services.vault_proxy.store.tables import REVOCATIONS, SESSION_AUTHORITIES
from services.vault_proxy.store.vaults import overwriting
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from storage import Database

_A, _R = SESSION_AUTHORITIES.c, REVOCATIONS.c
_MICRO = 1_000_000

_KEEP = text(
    "INSERT INTO session_authorities (session_id, workspace_id, certificate, sealed_key, made_at,"
    " asked_at) VALUES (:session_id, :workspace_id, :certificate, :sealed_key, :made_at, :made_at)"
    " ON CONFLICT (session_id) DO NOTHING"
)
_LOAD = Prepared(
    select(_A.certificate, _A.sealed_key, _A.made_at).where(
        _A.session_id == bindparam("session_id"), _A.workspace_id == bindparam("workspace_id")
    )
)
# Who has a grant has an authority: of a session of another workspace nothing is taken back.
_REVOKE = text(
    "INSERT INTO revocations (session_id, until)"
    " SELECT CAST(:session_id AS VARCHAR), CAST(:until AS BIGINT) WHERE NOT EXISTS"
    " (SELECT 1 FROM session_authorities AS known WHERE known.session_id = :session_id"
    " AND known.workspace_id <> :workspace_id)"
    " ON CONFLICT (session_id) DO UPDATE SET until = CASE WHEN excluded.until > revocations.until"
    " THEN excluded.until ELSE revocations.until END"
)
_REVOKED = Prepared(select(_R.until).where(_R.session_id == bindparam("session_id")))


class SqlAuthorities:
    """Implements `AuthorityStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, workspace_id: str, session_id: str) -> StoredAuthority | None:
        """The session's, if there is one."""
        return await self._database.read(
            lambda connection: _load(connection, workspace_id, session_id)
        )

    async def keep(self, authority: StoredAuthority) -> StoredAuthority:
        """Keeps it where the session has none yet; answers the one that is kept."""
        values = {
            "session_id": authority.session_id,
            "workspace_id": authority.workspace_id,
            "certificate": authority.certificate,
            "sealed_key": authority.sealed_key,
            "made_at": micros(authority.made_at),
        }

        def write(connection: Connection) -> StoredAuthority:
            connection.execute(_KEEP, values).close()
            # Another workspace's session of that id would be no session of this one.
            return _load(connection, authority.workspace_id, authority.session_id) or authority

        return await self._database.write(write)

    async def due(self, before: datetime, limit: int) -> Sequence[tuple[str, str]]:
        """Workspaces and ids of sessions that were not asked for since `before`."""
        query = (
            select(_A.workspace_id, _A.session_id)
            .where(_A.asked_at <= micros(before))
            .order_by(_A.asked_at)
            .limit(limit)
        )

        def read(connection: Connection) -> list[tuple[str, str]]:
            return [(row.workspace_id, row.session_id) for row in connection.execute(query)]

        return await self._database.read(read)

    async def asked(self, session_id: str, at: datetime) -> None:
        """Notes that the session is still there."""
        statement = (
            update(SESSION_AUTHORITIES)
            .where(_A.session_id == session_id)
            .values(asked_at=micros(at))
        )
        await self._database.write(lambda connection: connection.execute(statement).close())

    async def forget(self, workspace_id: str, session_id: str) -> None:
        """Removes a session's."""
        statement = delete(SESSION_AUTHORITIES).where(
            _A.session_id == session_id, _A.workspace_id == workspace_id
        )

        def write(connection: Connection) -> None:
            overwriting(connection)
            connection.execute(statement).close()

        await self._database.write(write)


class SqlRevocations:
    """Implements `Revocations`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def revoke(self, workspace_id: str, session_id: str, until: int) -> None:
        """Ends all that were given to the workspace's session until then."""
        values = {"session_id": session_id, "workspace_id": workspace_id, "until": until}
        await self._database.write(lambda connection: connection.execute(_REVOKE, values).close())

    async def revoked(self, session_id: str) -> int:
        """Until when all are ended; 0 where none is."""

        def read(connection: Connection) -> int:
            rows = _REVOKED.execute(connection, {"session_id": session_id})
            return int(rows[0][0]) if rows else 0

        return await self._database.read(read)

    async def forget(self, before: int) -> None:
        """Removes what is older."""
        statement = delete(REVOCATIONS).where(_R.until < before)
        await self._database.write(lambda connection: connection.execute(statement).close())


def _load(connection: Connection, workspace_id: str, session_id: str) -> StoredAuthority | None:
    values = {"session_id": session_id, "workspace_id": workspace_id}
    rows = _LOAD.execute(connection, values)
    if not rows:
        return None
    certificate, sealed_key, made_at = rows[0]
    made = datetime.fromtimestamp(made_at / _MICRO, UTC)
    return StoredAuthority(workspace_id, session_id, certificate, sealed_key, made)
