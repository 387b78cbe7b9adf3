"""How often a workspace's vaults were changed, for those who remember what was in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, select, text

from services.vault_proxy.store.tables import CHANGES
from storage.prepared import Prepared

if TYPE_CHECKING:
    from sqlalchemy import Connection

_COUNT: Final = Prepared(
    text(
        "INSERT INTO changes (workspace_id, revision) VALUES (:workspace_id, 1)"
        " ON CONFLICT (workspace_id) DO UPDATE SET revision = changes.revision + 1"
        " RETURNING revision"
    )
)
_READ: Final = Prepared(
    select(CHANGES.c.revision).where(CHANGES.c.workspace_id == bindparam("workspace_id"))
)


def count_change(connection: Connection, workspace_id: str) -> None:
    """Counts one, in the transaction that makes it."""
    _COUNT.execute(connection, {"workspace_id": workspace_id})


def changes(connection: Connection, workspace_id: str) -> int:
    """How many there were."""
    rows = _READ.execute(connection, {"workspace_id": workspace_id})
    return int(rows[0][0]) if rows else 0
