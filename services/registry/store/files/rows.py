"""Rows of files: how they are written, found, and taken away with what they count for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, text, update

from catalogue.resources.stamps import micros
from drover.file.v1.file_pb2 import File
from services.registry.store.files import usage
from services.registry.store.files.tables import FILES
from services.registry.store.objects.uses import hold, let_go
from storage.answers import withdraw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Row, Select

    Found = Row[Any]

_F = FILES.c
# As the index says it, so that engines see that it is the one.
_MADE = text("session_id != '' AND copy_of = ''")


def query() -> Select[Any]:
    """All rows, with what is needed of them."""
    return select(
        _F.id,
        _F.session_id,
        _F.copy_of,
        _F.size,
        _F.counted,
        _F.expires_at,
        _F.object,
        _F.definition,
    )


def find(connection: Connection, workspace_id: str, file_id: str) -> Found | None:
    """The row of a file of a workspace."""
    one = query().where(_F.id == file_id, _F.workspace_id == workspace_id)
    return connection.execute(one).one_or_none()


def made(connection: Connection, workspace_id: str, session_id: str, filename: str) -> Found | None:
    """The row of what a session has made under a name; an upload has been made by none."""
    if not session_id:
        return None
    one = query().where(
        _F.workspace_id == workspace_id,
        _F.session_id == session_id,
        _F.filename == filename,
        _MADE,
    )
    return connection.execute(one).one_or_none()


def add(
    connection: Connection, workspace_id: str, file: File, name: str, copy_of: str = ""
) -> None:
    """Writes the row of a new file whose bytes are in the object `name`.

    The caller holds the lock of the workspace's usage. Copies count for nothing.
    """
    hold(connection, name)
    connection.execute(
        insert(FILES).values(
            id=file.id,
            workspace_id=workspace_id,
            created_at=micros(file.created_at),
            session_id=file.scope.id,
            filename=file.filename,
            copy_of=copy_of,
            size=file.size_bytes,
            counted=not copy_of,
            expires_at=micros(file.expires_at) if file.HasField("expires_at") else None,
            object=name,
            definition=file.SerializeToString(),
        )
    )
    if not copy_of:
        usage.change(connection, workspace_id, file.size_bytes)


def remove(
    connection: Connection, workspace_id: str, which: ColumnElement[bool], now: int
) -> Sequence[str]:
    """Deletes the rows of files of a workspace, and answers their ids. The lock is as for `add`."""
    condition = (_F.workspace_id == workspace_id) & which
    found = connection.execute(query().where(condition)).all()
    if found:
        connection.execute(delete(FILES).where(condition))
        _let_go(connection, workspace_id, found, now)
        for row in found:
            withdraw(connection, row.id)
    return [row.id for row in found]


def expire(connection: Connection, workspace_id: str, ids: Sequence[str], now: int) -> int:
    """Takes their bytes from files whose time is over; answers of how many."""
    usage.lock(connection, workspace_id)
    condition = _F.id.in_(ids) & _F.object.is_not(None)
    found = connection.execute(query().where(condition)).all()
    if found:
        # Fence: the workspace's lock; nothing else takes a file's object away.
        connection.execute(update(FILES).where(condition).values(object=None, counted=False))
        _let_go(connection, workspace_id, found, now)
    return len(found)


def _let_go(connection: Connection, workspace_id: str, found: Sequence[Found], now: int) -> None:
    let_go(connection, [row.object for row in found if row.object is not None], now)
    usage.change(connection, workspace_id, -sum(row.size for row in found if row.counted))
