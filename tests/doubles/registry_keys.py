"""Environments' keys in memory; the contract suite holds it to what the real store does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalogue.resources.stamps import micros
from drover.environment.v1.environment_key_pb2 import EnvironmentKey
from services.registry.domain.environment_key import Holder, refuse_keyless
from services.registry.domain.missing import no_environment_key
from tests.doubles.answers import MemoryAnswers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from services.registry.domain.ports import Listing
    from tests.doubles.registry_store import MemoryEnvironmentStore


@dataclass
class _Kept:
    stored: EnvironmentKey
    digest: bytes
    revoked_at: datetime | None = None

    def copy(self) -> EnvironmentKey:
        made = EnvironmentKey()
        made.CopyFrom(self.stored)
        if self.revoked_at is not None:
            made.revoked_at.FromDatetime(self.revoked_at)
        return made


class MemoryEnvironmentKeyStore:
    """Implements `EnvironmentKeyStore` over the environments of another store."""

    def __init__(self, environments: MemoryEnvironmentStore, clock: Clock) -> None:
        self._environments = environments
        self._keys: dict[str, _Kept] = {}
        self._answers = MemoryAnswers(clock)

    async def add(
        self,
        workspace_id: str,
        key: EnvironmentKey,
        digest: bytes,
        once: Once[EnvironmentKey] | None = None,
    ) -> EnvironmentKey:
        environment = await self._environments.get(workspace_id, key.environment_id)

        def write() -> EnvironmentKey:
            refuse_keyless(environment)
            self._keys[key.id] = _Kept(_Kept(key, digest).copy(), digest)
            return key

        return self._answers.write(write, once, key.environment_id)

    async def revoke(
        self,
        workspace_id: str,
        environment_id: str,
        key_id: str,
        at: datetime,
        once: Once[EnvironmentKey] | None = None,
    ) -> EnvironmentKey:
        await self._environments.get(workspace_id, environment_id)

        def write() -> EnvironmentKey:
            kept = self._keys.get(key_id)
            if kept is None or kept.stored.environment_id != environment_id:
                raise no_environment_key(key_id)
            kept.revoked_at = kept.revoked_at or at
            return kept.copy()

        return self._answers.write(write, once, environment_id)

    async def page(
        self, workspace_id: str, environment_id: str, listing: Listing
    ) -> Sequence[EnvironmentKey]:
        await self._environments.get(workspace_id, environment_id)
        own = [one for one in self._keys.values() if one.stored.environment_id == environment_id]
        keys = [one.copy() for one in own]
        keys.sort(key=lambda key: (micros(key.created_at), key.id), reverse=True)
        if not listing.include_archived:
            keys = [key for key in keys if not key.HasField("revoked_at")]
        if listing.after is not None:
            after = (listing.after.order, listing.after.item_id)
            keys = [key for key in keys if (micros(key.created_at), key.id) < after]
        return keys[: listing.limit]

    async def holder(self, digest: bytes) -> Holder | None:
        for kept in self._keys.values():
            if kept.digest == digest and kept.revoked_at is None:
                environment_id = kept.stored.environment_id
                workspace_id = self._environments.workspace_of(environment_id)
                if workspace_id is not None:
                    return Holder(workspace_id, environment_id, kept.stored.id)
        return None
