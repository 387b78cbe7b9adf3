"""What sessions hold: the credentials of their vaults, opened for use, never older than allowed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from services.vault_proxy.domain.credential import SECRET_VALUE
from services.vault_proxy.domain.session import EnvironmentCredential
from services.vault_proxy.vault.places import credential_place, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chassis.clock import Clock
    from chassis.secret import Secret
    from services.vault_proxy.crypto.envelope import Envelopes
    from services.vault_proxy.domain.vault_ports import CredentialStore, Record

_FRESH_SECONDS: Final = 0.5
"""What another replica changed is not looked for more often (case E16: within a second)."""
_MOST: Final = 1_024

_log = structlog.get_logger("vault_proxy.holdings")


@dataclass
class _Held:
    """The records of some vaults, as of some revision."""

    local: int
    stored: int
    checked_at: float
    records: Sequence[Record]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Holdings:
    """Implements `Credentials`. Remembers sealed records only: `Envelopes` remember the keys."""

    def __init__(self, store: CredentialStore, envelopes: Envelopes, clock: Clock) -> None:
        self._store = store
        self._envelopes = envelopes
        self._clock = clock
        self._revision = 0
        self._held: OrderedDict[tuple[str, ...], _Held] = OrderedDict()

    def revision(self) -> int:
        """Grows whenever this process changes a vault or a credential."""
        return self._revision

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Around every change: what was read before its end counts for nothing any more."""
        try:
            yield
        finally:
            self._revision += 1

    async def records(self, workspace_id: str, vault_ids: Sequence[str]) -> Sequence[Record]:
        """The active credentials of the vaults, in their order and by age, sealed."""
        if not vault_ids:
            return ()
        key = (workspace_id, *vault_ids)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(-1, -1, 0.0, ())
            while len(self._held) > _MOST:
                self._held.popitem(last=False)
        self._held.move_to_end(key)
        if not self._is_fresh(held):
            async with held.turn:
                if not self._is_fresh(held):
                    await self._renew(held, workspace_id, vault_ids)
        return held.records

    async def opened(self, workspace_id: str, record: Record) -> Mapping[str, Secret]:
        """A record's secrets. Raises UNAVAILABLE, and INTERNAL for what was tampered with."""
        if record.sealed is None:
            return {}
        place = credential_place(workspace_id, record.credential)
        return unpacked(await self._envelopes.open(record.sealed, place))

    async def environment_credentials(
        self, workspace_id: str, vault_ids: Sequence[str]
    ) -> Sequence[EnvironmentCredential]:
        """The live ones of the vaults, in their order; of two with one name the first."""
        found: dict[str, EnvironmentCredential] = {}
        for record in await self.records(workspace_id, vault_ids):
            auth = record.credential.auth
            if not auth.HasField("environment_variable"):
                continue
            if auth.environment_variable.secret_name in found:
                continue
            try:
                secrets = await self.opened(workspace_id, record)
            except DroverError as error:
                if error.reason is Reason.UNAVAILABLE:
                    raise
                # It stays closed; what belongs to the session's other credentials goes on.
                _log.error("credential_unusable", credential_id=record.credential.id)
                continue
            credential = _environment(record, secrets[SECRET_VALUE])
            found[credential.name] = credential
        return tuple(found.values())

    def _is_fresh(self, held: _Held) -> bool:
        if held.local != self._revision:
            return False
        return self._clock.monotonic() - held.checked_at < _FRESH_SECONDS

    async def _renew(self, held: _Held, workspace_id: str, vault_ids: Sequence[str]) -> None:
        # Counters first: what is changed while the records are read makes them stale again.
        local, now = self._revision, self._clock.monotonic()
        stored = await self._store.revision(workspace_id)
        if stored != held.stored or held.local < 0:
            held.records = await self._store.live(workspace_id, vault_ids)
        held.local, held.stored, held.checked_at = local, stored, now


def _environment(record: Record, value: Secret) -> EnvironmentCredential:
    credential, auth = record.credential, record.credential.auth.environment_variable
    limited = auth.networking.HasField("limited")
    return EnvironmentCredential(
        id=credential.id,
        vault_id=credential.vault_id,
        name=auth.secret_name,
        value=value,
        allowed_hosts=tuple(auth.networking.limited.allowed_hosts) if limited else None,
        in_header=auth.injection_location.header,
        in_body=auth.injection_location.body,
    )
