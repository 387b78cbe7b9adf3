"""The audit trail in SQL: appended in batches, read by page, forgotten by age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, bindparam, delete, insert, select, text

from catalogue.resources.stamps import micros
from services.vault_proxy.domain.audit import AuditEntry, Kind, Outcome
from services.vault_proxy.store.tables import AUDIT
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from services.vault_proxy.domain.audit_ports import AuditFilter
    from storage import Database

_A = AUDIT.c
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_APPEND: Final = Prepared(
    insert(AUDIT).values({column.name: bindparam(column.name) for column in _A})
)
_FORGET: Final = delete(AUDIT).where(
    _A.id.in_(
        select(_A.id)
        .where(_A.at < bindparam("before"))
        .order_by(_A.at)
        .limit(bindparam("most", type_=Integer))
    )
)


class SqlAuditStore:
    """Implements `AuditStore`. Rows are only ever added, and removed when they are old."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, entries: Sequence[tuple[str, AuditEntry]]) -> None:
        """Adds entries under their ids, in one transaction; durable on return."""
        rows = [_row(ident, entry) for ident, entry in entries]
        await self._database.write(lambda connection: _APPEND.execute_rows(connection, rows))

    async def page(
        self, workspace_id: str, wanted: AuditFilter, limit: int, before: str = ""
    ) -> Sequence[tuple[str, AuditEntry]]:
        """Entries, newest first, older than the one with the id `before`."""
        query = select(AUDIT).where(_A.workspace_id == workspace_id)
        if wanted.session_id:
            query = query.where(_A.session_id == wanted.session_id)
        # As the indexes have it, word for word: SQLite uses them only then.
        if wanted.vault_id:
            query = query.where(_A.vault_id == wanted.vault_id, text("vault_id <> ''"))
        if wanted.credential_id:
            query = query.where(
                _A.credential_id == wanted.credential_id, text("credential_id <> ''")
            )
        if before:
            query = query.where(_A.id < before)
        query = query.order_by(_A.id.desc()).limit(limit)

        def read(connection: Connection) -> list[tuple[str, AuditEntry]]:
            return [(row.id, _entry(row)) for row in connection.execute(query)]

        return await self._database.read(read)

    async def forget(self, before: datetime, most: int) -> int:
        """Removes so many at most of those that are older; answers how many there were."""
        values = {"before": micros(before), "most": most}
        return await self._database.write(
            lambda connection: connection.execute(_FORGET, values).rowcount
        )


def _row(ident: str, entry: AuditEntry) -> tuple[Any, ...]:
    """In the order of the table's columns."""
    return (
        ident,
        entry.workspace_id,
        micros(entry.at),
        str(entry.kind),
        str(entry.verdict),
        entry.session_id,
        entry.hand_id,
        entry.vault_id,
        entry.credential_id,
        entry.method,
        entry.host,
        entry.port,
        entry.path,
        entry.reason,
    )


def _entry(row: Row[Any]) -> AuditEntry:
    return AuditEntry(
        at=_EPOCH + timedelta(microseconds=row.at),
        kind=Kind(row.kind),
        verdict=Outcome(row.verdict),
        workspace_id=row.workspace_id,
        session_id=row.session_id,
        hand_id=row.hand_id,
        vault_id=row.vault_id,
        credential_id=row.credential_id,
        method=row.method,
        host=row.host,
        port=row.port,
        path=row.path,
        reason=row.reason,
    )
