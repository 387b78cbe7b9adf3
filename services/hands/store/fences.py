"""The sessions' fences in the database, and the workspaces that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, func, insert, select, update

from services.hands.domain import fence
from services.hands.store import tables
from storage.prepared import Prepared

if TYPE_CHECKING:
    from sqlalchemy import Connection

_fences, _ended = tables.fences, tables.ended
_this = _fences.c.session_id == bindparam("session")

# The fence's row is the session's lock, where the engine lets writers run beside each other.
_READ: Final = Prepared(
    select(_fences.c.generation, _fences.c.workspace_id).where(_this).with_for_update()
)
_LOCK: Final = select(func.pg_advisory_xact_lock(bindparam("number")))
_RAISE: Final = Prepared(
    update(_fences)
    .where(_this)
    .values(generation=bindparam("highest"), workspace_id=bindparam("workspace"))
)
_ADD: Final = Prepared(insert(_fences))
_PURGE: Final = delete(_fences).where(_this)
_READ_ENDED: Final = Prepared(
    select(_ended.c.generation).where(_ended.c.session_hash == bindparam("hash"))
)


@dataclass(frozen=True, slots=True)
class Fence:
    """The newest generation seen of a session, and its workspace; empty where it is not known."""

    generation: int
    workspace_id: str


def advance(connection: Connection, session_id: str, generation: int, workspace_id: str) -> None:
    """Takes a generation, which may not be older than the newest seen.

    Whoever speaks for a session first says of which workspace it is. Raises LEASE_LOST, and
    NOT_FOUND for a session of another workspace.
    """
    found = find(connection, session_id)
    if found is not None:
        fence.check_workspace(session_id, found.workspace_id, workspace_id)
    if found is None:
        row = {
            "session_id": session_id,
            "generation": fence.advance(_ended_at(connection, session_id), generation),
            "workspace_id": workspace_id or None,
        }
        _ADD.execute(connection, row)
    elif fence.advance(found.generation, generation) > found.generation:
        workspace = workspace_id or found.workspace_id or None
        values = {"session": session_id, "highest": generation, "workspace": workspace}
        _RAISE.execute(connection, values)


def end(connection: Connection, session_id: str, generation: int, workspace_id: str) -> None:
    """Takes nothing of a generation, or of an older one, any more. Raises as `advance` does.

    A session that is gone gets no fence again: that it has ended is remembered.
    """
    gone = find(connection, session_id) is None and _ended_at(connection, session_id)
    if gone != generation + 1:
        advance(connection, session_id, generation + 1, workspace_id)


def find(connection: Connection, session_id: str) -> Fence | None:
    """The session's fence, if it has one, locked in any case."""
    rows = _READ.execute(connection, {"session": session_id})
    if not rows and connection.dialect.name == "postgresql":
        number = int.from_bytes(hashed(session_id)[:8], "big", signed=True)
        connection.execute(_LOCK, {"number": number})
        rows = _READ.execute(connection, {"session": session_id})
    return Fence(rows[0][0], rows[0][1] or "") if rows else None


def _ended_at(connection: Connection, session_id: str) -> int:
    """What generation a session that is gone is beyond; 0 if it is not gone."""
    rows = _READ_ENDED.execute(connection, {"hash": hashed(session_id)})
    return int(rows[0][0]) if rows else 0


def purge(connection: Connection, session_id: str) -> None:
    """Forgets a session's fence."""
    connection.execute(_PURGE, {"session": session_id})


def hashed(session_id: str) -> bytes:
    """The name under which a session is remembered that is gone."""
    return sha256(session_id.encode()).digest()
