"""Versions of memories in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, update

from catalogue.resources.stamps import micros
from services.registry.domain.memory.refusals import live_version, no_memory_version
from services.registry.store.memory.rows import (
    VERSION_COLUMNS,
    hold_store,
    made_by,
    overwriting,
    require_store,
    version_of,
)
from services.registry.store.memory.tables import MEMORIES, MEMORY_VERSIONS
from storage.once import Answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from drover.memory.v1.memory_pb2 import MemoryVersion
    from services.registry.domain.memory.memory import Origin
    from services.registry.domain.memory.ports import VersionListing
    from storage import Database

_M, _V = MEMORIES.c, MEMORY_VERSIONS.c


class SqlMemoryVersions:
    """Implements `MemoryVersions`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._answers = Answers(database, clock)

    async def get(self, workspace_id: str, store_id: str, version_id: str) -> MemoryVersion:
        """A version with its content. Raises NOT_FOUND."""

        def read(connection: Connection) -> MemoryVersion:
            require_store(connection, workspace_id, store_id)
            return load_version(connection, store_id, version_id)

        return await self._database.read(read)

    async def page(
        self, workspace_id: str, store_id: str, listing: VersionListing
    ) -> Sequence[tuple[MemoryVersion, int]]:
        """Versions, newest first. Raises NOT_FOUND."""
        columns = (*VERSION_COLUMNS, _V.content) if listing.with_content else VERSION_COLUMNS
        query = select(*columns).where(*_conditions(store_id, listing))
        query = query.order_by(_V.revision.desc()).limit(listing.limit)

        def read(connection: Connection) -> Sequence[tuple[MemoryVersion, int]]:
            require_store(connection, workspace_id, store_id)
            rows = connection.execute(query)
            return [
                (version_of(row, row.content if listing.with_content else None), row.revision)
                for row in rows
            ]

        return await self._database.read(read)

    async def redact(
        self,
        workspace_id: str,
        store_id: str,
        version_id: str,
        origin: Origin,
        once: Once[MemoryVersion] | None = None,
    ) -> MemoryVersion:
        """Removes what a version says for good. Raises as `MemoryVersions`."""

        def write(connection: Connection) -> MemoryVersion:
            hold_store(connection, workspace_id, store_id)
            version = load_version(connection, store_id, version_id)
            if version.HasField("redacted_at"):
                return version
            # Fence: with the store's row locked no memory comes to hold the version, or leaves it.
            live = select(_M.id).where(_M.id == version.memory_id, _M.version_id == version_id)
            if connection.execute(live).one_or_none() is not None:
                raise live_version(version_id)
            overwriting(connection)
            connection.execute(
                update(MEMORY_VERSIONS)
                .where(_V.id == version_id)
                .values(
                    redacted_at=micros(origin.at),
                    redacted_by=None if origin.by is None else origin.by.SerializeToString(),
                    path=None,
                    content_sha256=None,
                    content_size=None,
                    content=None,
                )
            )
            return load_version(connection, store_id, version_id)

        return await self._answers.write(write, once, store_id)


def load_version(connection: Connection, store_id: str, version_id: str) -> MemoryVersion:
    """A version with its content. Raises NOT_FOUND."""
    query = select(*VERSION_COLUMNS, _V.content)
    found = connection.execute(
        query.where(_V.id == version_id, _V.store_id == store_id)
    ).one_or_none()
    if found is None:
        raise no_memory_version(version_id)
    return version_of(found, found.content)


def _conditions(store_id: str, listing: VersionListing) -> list[ColumnElement[bool]]:
    conditions = [_V.store_id == store_id, *made_by(listing.session_id, listing.api_key_id)]
    if listing.memory_id is not None:
        conditions.append(_V.memory_id == listing.memory_id)
    if listing.operation is not None:
        conditions.append(_V.operation == listing.operation)
    if listing.created_from is not None:
        conditions.append(_V.created_at >= listing.created_from)
    if listing.created_to is not None:
        conditions.append(_V.created_at <= listing.created_to)
    if listing.before is not None:
        conditions.append(_V.revision < listing.before)
    return conditions
