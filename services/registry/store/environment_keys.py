"""Keys of environments in SQL, by their digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, select, tuple_, update

from catalogue.resources.stamps import micros
from drover.environment.v1.environment_key_pb2 import EnvironmentKey
from services.registry.domain.environment_key import Holder, refuse_keyless
from services.registry.domain.missing import no_environment_key
from services.registry.store.environments import load
from services.registry.store.tables import ENVIRONMENT_KEYS, ENVIRONMENTS
from storage.once import Answers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from services.registry.domain.ports import Listing
    from storage import Database

_K = ENVIRONMENT_KEYS.c
_E = ENVIRONMENTS.c


class SqlEnvironmentKeyStore:
    """Implements `EnvironmentKeyStore`. An environment's row is the fence for its new keys."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._answers = Answers(database, clock)

    async def add(
        self,
        workspace_id: str,
        key: EnvironmentKey,
        digest: bytes,
        once: Once[EnvironmentKey] | None = None,
    ) -> EnvironmentKey:
        """Keeps a new key. Raises ENVIRONMENT_NOT_FOUND, and as `refuse_keyless`."""
        statement = insert(ENVIRONMENT_KEYS).values(
            id=key.id,
            environment_id=key.environment_id,
            digest=digest,
            created_at=micros(key.created_at),
            definition=key.SerializeToString(),
        )

        def write(connection: Connection) -> EnvironmentKey:
            # Fence: the environment is not deleted before its key is there.
            refuse_keyless(load(connection, workspace_id, key.environment_id, lock=True))
            connection.execute(statement)
            return key

        return await self._answers.write(write, once, key.environment_id)

    async def revoke(
        self,
        workspace_id: str,
        environment_id: str,
        key_id: str,
        at: datetime,
        once: Once[EnvironmentKey] | None = None,
    ) -> EnvironmentKey:
        """Revokes a key; a revoked one keeps its time. Raises as `EnvironmentKeyStore`."""

        def write(connection: Connection) -> EnvironmentKey:
            load(connection, workspace_id, environment_id)
            one = (_K.id == key_id, _K.environment_id == environment_id)
            # Fence: only the first revocation sets the time.
            connection.execute(
                update(ENVIRONMENT_KEYS)
                .where(*one, _K.revoked_at.is_(None))
                .values(revoked_at=micros(at))
            )
            query = select(_K.definition, _K.revoked_at).where(*one)
            found = connection.execute(query).one_or_none()
            if found is None:
                raise no_environment_key(key_id)
            return _key(found.definition, found.revoked_at)

        return await self._answers.write(write, once, environment_id)

    async def page(
        self, workspace_id: str, environment_id: str, listing: Listing
    ) -> Sequence[EnvironmentKey]:
        """An environment's keys, newest first. Raises ENVIRONMENT_NOT_FOUND."""
        query = select(_K.definition, _K.revoked_at).where(_K.environment_id == environment_id)
        if not listing.include_archived:
            query = query.where(_K.revoked_at.is_(None))
        if listing.after is not None:
            after = tuple_(listing.after.order, listing.after.item_id)
            query = query.where(tuple_(_K.created_at, _K.id) < after)
        query = query.order_by(_K.created_at.desc(), _K.id.desc()).limit(listing.limit)

        def read(connection: Connection) -> Sequence[EnvironmentKey]:
            load(connection, workspace_id, environment_id)
            return [_key(definition, at) for definition, at in connection.execute(query)]

        return await self._database.read(read)

    async def holder(self, digest: bytes) -> Holder | None:
        """Who holds the key of a digest, if it opens anything."""
        query = (
            select(_E.workspace_id, _E.id, _K.id)
            .join_from(ENVIRONMENT_KEYS, ENVIRONMENTS, _E.id == _K.environment_id)
            .where(_K.digest == digest, _K.revoked_at.is_(None))
        )

        def read(connection: Connection) -> Holder | None:
            found = connection.execute(query).one_or_none()
            if found is None:
                return None
            workspace_id, environment_id, key_id = found
            return Holder(workspace_id, environment_id, key_id)

        return await self._database.read(read)


def _key(definition: bytes, revoked_at: int | None) -> EnvironmentKey:
    key = EnvironmentKey.FromString(definition)
    if revoked_at is not None:
        key.revoked_at.FromMicroseconds(revoked_at)
    return key
