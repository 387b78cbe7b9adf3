"""A store's row, which every change of its memories holds, and the versions that those make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import insert, literal, select, update

from drover.memory.v1.memory_pb2 import (
    MEMORY_OPERATION_DELETED,
    Actor,
    Memory,
    MemoryOperation,
    MemoryVersion,
)
from services.registry.domain.memory.memory import KEPT_MICROS, KEPT_VERSIONS
from services.registry.domain.memory.refusals import no_memory_store, store_archived
from services.registry.store.memory.tables import MEMORIES, MEMORY_STORES, MEMORY_VERSIONS

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Row

_S, _M, _V = MEMORY_STORES.c, MEMORIES.c, MEMORY_VERSIONS.c

_API: Final = Actor.DESCRIPTOR.fields_by_name["api_actor"].number
_SESSION: Final = Actor.DESCRIPTOR.fields_by_name["session_actor"].number

MEMORY_COLUMNS: Final = tuple(column for column in _M if column is not _M.revision)
VERSION_COLUMNS: Final = tuple(column for column in _V if column not in {_V.expires_at, _V.content})


class Held(NamedTuple):
    """A store that no other transaction changes while this one runs."""

    id: str
    revision: int
    changed_at: int
    memories: int


class Step(NamedTuple):
    """The next change of a store: its revision, and its time, not before the last one's."""

    revision: int
    at: int


def require_store(connection: Connection, workspace_id: str, store_id: str) -> None:
    """Raises NOT_FOUND for a store that is not there."""
    found = select(literal(1)).where(*_one(workspace_id, store_id))
    if connection.execute(found).one_or_none() is None:
        raise no_memory_store(store_id)


def hold_store(
    connection: Connection, workspace_id: str, store_id: str, *, writing: bool = False
) -> Held:
    """Locks a store. Raises NOT_FOUND, and ARCHIVED if its memories are to be written."""
    columns = _S.id, _S.revision, _S.changed_at, _S.memories, _S.archived_at
    query = select(*columns).where(*_one(workspace_id, store_id))
    found = connection.execute(query.with_for_update()).one_or_none()
    if found is None:
        raise no_memory_store(store_id)
    if writing and found.archived_at is not None:
        raise store_archived(store_id)
    return Held(found.id, found.revision, found.changed_at, found.memories)


def step(connection: Connection, held: Held, at: int, *, memories: int = 0) -> Step:
    """Counts a change of a store that is held, which adds so many memories to it."""
    made = Step(held.revision + 1, max(at, held.changed_at))
    # Fence: the row is locked since it was read.
    connection.execute(
        update(MEMORY_STORES)
        .where(_S.id == held.id)
        .values(revision=made.revision, changed_at=made.at, memories=held.memories + memories)
    )
    return made


def add_version(
    connection: Connection,
    memory: Memory,
    operation: MemoryOperation.ValueType,
    by: Actor | None,
    made: Step,
) -> None:
    """Keeps what a change made of a memory, and lets those go that are not its newest any more."""
    deleted = operation == MEMORY_OPERATION_DELETED
    kind, actor_id = _told(by)
    connection.execute(
        insert(MEMORY_VERSIONS).values(
            id=memory.memory_version_id,
            store_id=memory.memory_store_id,
            memory_id=memory.id,
            revision=made.revision,
            operation=operation,
            created_at=made.at,
            actor_kind=kind,
            actor_id=actor_id,
            path=memory.path,
            content_sha256=None if deleted else memory.content_sha256,
            content_size=None if deleted else memory.content_size_bytes,
            content=None if deleted else memory.content.encode(),
        )
    )
    of_it = _V.memory_id == memory.id
    if deleted:
        connection.execute(
            update(MEMORY_VERSIONS)
            .where(of_it, _V.expires_at.is_(None))
            .values(expires_at=made.at + KEPT_MICROS)
        )
        return
    surplus = select(_V.id).where(of_it).order_by(_V.revision.desc()).offset(KEPT_VERSIONS).limit(1)
    connection.execute(
        update(MEMORY_VERSIONS)
        .where(_V.id == surplus.scalar_subquery())
        .values(expires_at=_V.created_at + KEPT_MICROS)
    )


def overwriting(connection: Connection) -> None:
    """Before what is to be gone for good is removed: SQLite is not to leave it in the file."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")


def memory_of(row: Row[*tuple[Any, ...]], content: bytes | None) -> Memory:
    """A memory as its row, of `MEMORY_COLUMNS` at the least, has it."""
    memory = Memory(
        id=row.id,
        memory_store_id=row.store_id,
        memory_version_id=row.version_id,
        path=row.path,
        content=None if content is None else content.decode(),
        content_sha256=row.content_sha256,
        content_size_bytes=row.content_size,
    )
    memory.created_at.FromMicroseconds(row.created_at)
    memory.updated_at.FromMicroseconds(row.updated_at)
    return memory


def version_of(row: Row[*tuple[Any, ...]], content: bytes | None) -> MemoryVersion:
    """A version as its row, of `VERSION_COLUMNS` at the least, has it."""
    version = MemoryVersion(
        id=row.id,
        memory_id=row.memory_id,
        memory_store_id=row.store_id,
        operation=row.operation,
        path=row.path,
        content=None if content is None else content.decode(),
        content_sha256=row.content_sha256,
        content_size_bytes=row.content_size,
    )
    version.created_at.FromMicroseconds(row.created_at)
    if row.actor_kind == _API:
        version.created_by.api_actor.api_key_id = row.actor_id
    elif row.actor_kind == _SESSION:
        version.created_by.session_actor.session_id = row.actor_id
    if row.redacted_at is not None:
        version.redacted_at.FromMicroseconds(row.redacted_at)
    if row.redacted_by is not None:
        version.redacted_by.ParseFromString(row.redacted_by)
    return version


def made_by(session_id: str | None, api_key_id: str | None) -> list[ColumnElement[bool]]:
    """Conditions on the versions of a session, and of a key: of both there are none."""
    conditions = []
    if session_id is not None:
        conditions += [_V.actor_id == session_id, _V.actor_kind == _SESSION]
    if api_key_id is not None:
        conditions += [_V.actor_id == api_key_id, _V.actor_kind == _API]
    return conditions


def _told(by: Actor | None) -> tuple[int | None, str | None]:
    if by is None:
        return None, None
    which = by.WhichOneof("actor")
    if which == "api_actor":
        return _API, by.api_actor.api_key_id
    if which == "session_actor":
        return _SESSION, by.session_actor.session_id
    return None, None


def _one(workspace_id: str, store_id: str) -> tuple[ColumnElement[bool], ...]:
    return _S.id == store_id, _S.workspace_id == workspace_id, _S.deleted_at.is_(None)
