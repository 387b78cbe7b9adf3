"""Memories by their paths, with or without what lies deeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from drover.memory.v1.memory_pb2 import MemoryPrefix
from drover.memory.v1.memory_service_pb2 import MemoryListItem
from services.registry.domain.memory.paths import behind, below, children
from services.registry.store.memory.rows import MEMORY_COLUMNS, memory_of
from services.registry.store.memory.tables import MEMORIES, MEMORY_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection

    from drover.memory.v1.memory_pb2 import Memory
    from services.registry.domain.memory.ports import MemoryListing

_M, _V = MEMORIES.c, MEMORY_VERSIONS.c


def items(
    connection: Connection, store_id: str, listing: MemoryListing
) -> Sequence[MemoryListItem]:
    """The part of a store's memories that `listing` asks for."""
    part = below(listing.directory)
    if listing.after is not None:
        part = behind(listing.after, part)
    inside = (_M.store_id == store_id, _M.path >= part.first, _M.path < part.end)
    if not listing.children_only:
        found = _memories(connection, *inside, listing=listing)
        return [MemoryListItem(memory=memory) for memory in found]
    # All paths of a store are few enough to look through (`MAX_MEMORIES`).
    paths = connection.scalars(select(_M.path).where(*inside).order_by(_M.path))
    wanted = children(paths, listing.directory, listing.limit)
    files = [item for item in wanted if not item.endswith("/")]
    by_path: dict[str, Memory] = {}
    if files:
        these = (_M.store_id == store_id, _M.path.in_(files))
        found = _memories(connection, *these, listing=listing)
        by_path = {memory.path: memory for memory in found}
    return [
        MemoryListItem(memory_prefix=MemoryPrefix(path=item))
        if item.endswith("/")
        else MemoryListItem(memory=by_path[item])
        for item in wanted
    ]


def _memories(
    connection: Connection, *conditions: ColumnElement[bool], listing: MemoryListing
) -> Sequence[Memory]:
    query = select(*MEMORY_COLUMNS)
    if listing.with_content:
        query = select(*MEMORY_COLUMNS, _V.content).join_from(
            MEMORIES, MEMORY_VERSIONS, _V.id == _M.version_id
        )
    query = query.where(*conditions).order_by(_M.path).limit(listing.limit)
    rows = connection.execute(query)
    return [memory_of(row, row.content if listing.with_content else None) for row in rows]
