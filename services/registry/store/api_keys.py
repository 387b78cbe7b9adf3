"""API keys in SQL, by their digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, select, tuple_, update

from catalogue.resources.stamps import micros
from drover.key.v1.api_key_pb2 import ApiKey
from services.registry.domain.missing import no_api_key
from services.registry.store.tables import API_KEYS
from storage.once import Answers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from services.registry.domain.ports import Listing
    from storage import Database

_K = API_KEYS.c
_KEPT = select(_K.definition, _K.revoked_at)


class SqlApiKeyStore:
    """Implements `ApiKeyStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._answers = Answers(database, clock)

    async def add(self, key: ApiKey, digest: bytes, once: Once[ApiKey] | None = None) -> ApiKey:
        """Keeps a new key."""
        statement = insert(API_KEYS).values(
            id=key.id,
            workspace_id=key.workspace_id,
            digest=digest,
            created_at=micros(key.created_at),
            definition=key.SerializeToString(),
        )

        def write(connection: Connection) -> ApiKey:
            connection.execute(statement)
            return key

        return await self._answers.write(write, once, key.id)

    async def get(self, workspace_id: str | None, key_id: str) -> ApiKey:
        """A key. Raises NOT_FOUND."""
        return await self._database.read(lambda connection: _load(connection, workspace_id, key_id))

    async def revoke(
        self,
        workspace_id: str | None,
        key_id: str,
        at: datetime,
        once: Once[ApiKey] | None = None,
    ) -> ApiKey:
        """Revokes a key; a revoked one keeps its time. Raises NOT_FOUND."""

        def write(connection: Connection) -> ApiKey:
            # Fence: only the first revocation sets the time.
            connection.execute(
                update(API_KEYS)
                .where(*_one(workspace_id, key_id), _K.revoked_at.is_(None))
                .values(revoked_at=micros(at))
            )
            return _load(connection, workspace_id, key_id)

        return await self._answers.write(write, once, key_id)

    async def page(self, workspace_id: str | None, listing: Listing) -> Sequence[ApiKey]:
        """Keys, newest first."""
        query = _KEPT.where(*_of(workspace_id))
        if not listing.include_archived:
            query = query.where(_K.revoked_at.is_(None))
        if listing.after is not None:
            after = tuple_(listing.after.order, listing.after.item_id)
            query = query.where(tuple_(_K.created_at, _K.id) < after)
        query = query.order_by(_K.created_at.desc(), _K.id.desc()).limit(listing.limit)

        def read(connection: Connection) -> Sequence[ApiKey]:
            return [_key(definition, at) for definition, at in connection.execute(query)]

        return await self._database.read(read)

    async def find(self, digest: bytes) -> ApiKey | None:
        """The key of a digest."""
        query = _KEPT.where(_K.digest == digest)

        def read(connection: Connection) -> ApiKey | None:
            found = connection.execute(query).one_or_none()
            return None if found is None else _key(found.definition, found.revoked_at)

        return await self._database.read(read)


def _load(connection: Connection, workspace_id: str | None, key_id: str) -> ApiKey:
    found = connection.execute(_KEPT.where(*_one(workspace_id, key_id))).one_or_none()
    if found is None:
        raise no_api_key(key_id)
    return _key(found.definition, found.revoked_at)


def _one(workspace_id: str | None, key_id: str) -> list[ColumnElement[bool]]:
    return [_K.id == key_id, *_of(workspace_id)]


def _of(workspace_id: str | None) -> list[ColumnElement[bool]]:
    return [] if workspace_id is None else [_K.workspace_id == workspace_id]


def _key(definition: bytes, revoked_at: int | None) -> ApiKey:
    key = ApiKey.FromString(definition)
    if revoked_at is not None:
        key.revoked_at.FromMicroseconds(revoked_at)
    return key
