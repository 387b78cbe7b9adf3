"""Statements on checkpoints: see `domain.checkpoints`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, select, text

from services.session.domain.checkpoints import Checkpoint, check
from services.session.store import sessions
from services.session.store import tables as t
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from services.session.domain.checkpoints import Format
    from services.session.domain.session import SessionRef
    from storage import Database

_of = t.checkpoints.c
_ours = _of.session_id == bindparam("session")
# The session stays while this is written, and whoever appends to it does not wait.
_STAYS = Prepared(
    select(t.sessions)
    .where(t.sessions.c.id == bindparam("session"))
    .with_for_update(read=True, key_share=True)
)
_FORMAT = Prepared(
    select(_of.harness, _of.version)
    .join(t.sessions, t.sessions.c.id == _of.session_id)
    .where(_ours, t.sessions.c.workspace_id == bindparam("workspace"))
)
_LOAD = Prepared(select(_of.seq, _of.body).where(_ours))
_SAVE = Prepared(
    text(
        "INSERT INTO checkpoints (session_id, harness, version, seq, body)"
        " VALUES (:session, :harness, :version, :seq, :body)"
        " ON CONFLICT (session_id) DO UPDATE SET harness = excluded.harness,"
        " version = excluded.version, seq = excluded.seq, body = excluded.body"
    )
)
_DISCARD = delete(t.checkpoints).where(
    _ours,
    select(t.sessions.c.id)
    .where(t.sessions.c.id == _of.session_id, t.sessions.c.workspace_id == bindparam("workspace"))
    .exists(),
)


class SqlCheckpointStore:
    """Checkpoints in the database of the sessions, each written in a transaction of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, ref: SessionRef, formats: Collection[Format]) -> Checkpoint | None:
        """A session's checkpoint, if it is in one of the formats."""
        return await self._database.read(partial(_load, ref, formats))

    async def save(self, ref: SessionRef, generation: int, checkpoint: Checkpoint) -> None:
        """Keeps a checkpoint in place of the last one."""
        await self._database.write(partial(_save, ref, generation, checkpoint))

    async def discard(self, ref: SessionRef) -> None:
        """Removes a session's checkpoint, if there is one."""
        await self._database.write(partial(_discard, ref))


def _load(
    ref: SessionRef, formats: Collection[Format], connection: Connection
) -> Checkpoint | None:
    found = _FORMAT.execute(connection, {"session": ref.session_id, "workspace": ref.workspace_id})
    # The format first: one that nobody here reads may be long.
    if not found or (kept := (found[0][0], found[0][1])) not in formats:
        return None
    rows = _LOAD.execute(connection, {"session": ref.session_id})
    return Checkpoint(kept, rows[0][0], rows[0][1]) if rows else None


def _save(ref: SessionRef, generation: int, checkpoint: Checkpoint, connection: Connection) -> None:
    rows = _STAYS.execute(connection, {"session": ref.session_id})
    there = bool(rows) and rows[0][1] == ref.workspace_id
    check(ref, sessions.restored(rows[0]) if there else None, generation, checkpoint)
    harness, version = checkpoint.format
    row = (ref.session_id, harness, version, checkpoint.seq, checkpoint.data)
    _SAVE.execute_rows(connection, [row])


def _discard(ref: SessionRef, connection: Connection) -> None:
    connection.execute(_DISCARD, {"session": ref.session_id, "workspace": ref.workspace_id})
