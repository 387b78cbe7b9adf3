"""What a workspace's files count for. Its row is the fence of every write to its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, text, update

from services.registry.store.files.tables import FILE_USAGE

if TYPE_CHECKING:
    from sqlalchemy import Connection

_U = FILE_USAGE.c
_BEGIN = text(
    "INSERT INTO file_usage (workspace_id, used) VALUES (:workspace_id, 0)"
    " ON CONFLICT (workspace_id) DO NOTHING"
)


def used(connection: Connection, workspace_id: str) -> int:
    """Bytes that a workspace's files count for."""
    query = select(_U.used).where(_U.workspace_id == workspace_id)
    return connection.execute(query).scalar_one_or_none() or 0


def lock(connection: Connection, workspace_id: str) -> int:
    """As `used`; until the end of the transaction nobody else writes the workspace's files."""
    query = select(_U.used).where(_U.workspace_id == workspace_id).with_for_update()
    found: int | None = connection.execute(query).scalar_one_or_none()
    if found is None:
        connection.execute(_BEGIN, {"workspace_id": workspace_id})
        found = connection.execute(query).scalar_one()
    return int(found)


def change(connection: Connection, workspace_id: str, by: int) -> None:
    """Counts so many bytes more, or less."""
    if by:
        connection.execute(
            update(FILE_USAGE).where(_U.workspace_id == workspace_id).values(used=_U.used + by)
        )
