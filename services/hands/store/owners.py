"""Which workspace a session belongs to, for what is done when no call says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, select

from services.hands.store.tables import fences

if TYPE_CHECKING:
    from storage import Database

_READ: Final = select(fences.c.workspace_id).where(fences.c.session_id == bindparam("session"))


class SqlOwners:
    """The `Owners` port over the fences, which every call of a session has passed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def workspace_of(self, session_id: str) -> str:
        """The session's workspace; empty where it is not known. Raises `DroverError`."""
        values = {"session": session_id}
        found = await self._database.read(
            lambda connection: connection.execute(_READ, values).scalar()
        )
        return found or ""
