"""What has changed in stores since somebody looked last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, select

from drover.memory.v1.memory_pb2 import MEMORY_OPERATION_DELETED
from drover.memory.v1.memory_service_pb2 import StoreChanges
from services.registry.store.memory.rows import MEMORY_COLUMNS, memory_of
from services.registry.store.memory.tables import MEMORIES, MEMORY_STORES, MEMORY_VERSIONS
from storage.prepared import PreparedAmong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from drover.memory.v1.memory_service_pb2 import StorePosition

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of memories that one answer about a store has."""

MOST_DELETIONS: Final = 10_000
"""Ids of deleted memories that one answer about a store has."""

_S, _M, _V = MEMORY_STORES.c, MEMORIES.c, MEMORY_VERSIONS.c

_BESIDE: Final = 1536
"""What a memory's path, ids and times take in an answer at the most."""

_LOOK = PreparedAmong(
    lambda ids: select(_S.id, _S.revision, _S.archived_at).where(
        _S.id.in_(ids), _S.workspace_id == bindparam("workspace_id"), _S.deleted_at.is_(None)
    )
)


def changes_since(
    connection: Connection, workspace_id: str, positions: Sequence[StorePosition]
) -> Sequence[StoreChanges]:
    """What has become of stores since positions, in their order. Where nothing has, one look."""
    ids = [position.memory_store_id for position in positions]
    rows = _LOOK.execute(connection, {"workspace_id": workspace_id}, ids)
    known = {store_id: (revision, archived_at) for store_id, revision, archived_at in rows}
    answers = []
    for position in positions:
        if position.memory_store_id not in known:
            answers.append(StoreChanges(revision=position.revision, gone=True))
            continue
        revision, archived_at = known[position.memory_store_id]
        changes = StoreChanges(revision=revision, archived=archived_at is not None)
        if revision != position.revision:
            _tell(connection, position, changes)
        answers.append(changes)
    return answers


def _tell(connection: Connection, position: StorePosition, changes: StoreChanges) -> None:
    """Adds the changes themselves, so many as one answer has, in the order of their revisions."""
    store_id, upto = position.memory_store_id, changes.revision
    # A position that is yet to come is of a database that was put back to an earlier state.
    since = position.revision if position.revision < upto else 0
    deletions = _deletions(connection, store_id, since) if since else []
    if len(deletions) > MOST_DELETIONS:
        upto = deletions[MOST_DELETIONS - 1].revision
    changed = (_M.store_id == store_id, _M.revision > since, _M.revision <= upto)
    sizes = select(_M.revision, _M.content_size).where(*changed).order_by(_M.revision)
    total, last = 0, since
    for revision, size in connection.execute(sizes):
        total += size + _BESIDE
        if total > MOST_BYTES:
            upto = last
            break
        last = revision
    changes.deleted_ids.extend(row.memory_id for row in deletions if row.revision <= upto)
    query = (
        select(*MEMORY_COLUMNS, _V.content)
        .join_from(MEMORIES, MEMORY_VERSIONS, _V.id == _M.version_id)
        .where(*changed, _M.revision <= upto)
        .order_by(_M.revision)
    )
    changes.memories.extend(memory_of(row, row.content) for row in connection.execute(query))
    changes.more = upto < changes.revision
    changes.revision = upto


def _deletions(connection: Connection, store_id: str, since: int) -> Sequence[Row[int, str]]:
    query = (
        select(_V.revision, _V.memory_id)
        .where(_V.store_id == store_id, _V.revision > since)
        .where(_V.operation == MEMORY_OPERATION_DELETED)
        .order_by(_V.revision)
        .limit(MOST_DELETIONS + 1)
    )
    return connection.execute(query).all()
