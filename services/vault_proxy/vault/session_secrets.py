"""Secrets of sessions' resources, such as a repository's token: kept before the session is."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from services.vault_proxy.domain import written
from services.vault_proxy.domain.session import has_ended
from services.vault_proxy.domain.vault_ports import SessionSecretRow
from services.vault_proxy.vault.places import session_place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chassis.clock import Clock
    from services.vault_proxy.crypto.envelope import Envelopes
    from services.vault_proxy.domain.ports import SessionReader
    from services.vault_proxy.domain.vault_ports import SessionSecretStore

_GRACE: Final = timedelta(hours=1)
"""A session that is not there by then never came to be."""
_DAILY: Final = timedelta(days=1)
_POSTPONED: Final = timedelta(minutes=5)
"""When one that cannot be asked for now is asked for again: nobody waits behind it."""
_SWEEP_SECONDS: Final = 600.0
_BATCH: Final = 100

_log = structlog.get_logger("vault_proxy.session_secrets")


class KeptSessionSecrets:
    """Implements `SessionSecrets`."""

    def __init__(self, store: SessionSecretStore, envelopes: Envelopes, clock: Clock) -> None:
        self._store = store
        self._envelopes = envelopes
        self._clock = clock

    async def put(self, workspace_id: str, session_id: str, resource_id: str, value: str) -> None:
        """Keeps a secret in place of an earlier one.

        Raises INVALID_ARGUMENT for one with control characters, and UNAVAILABLE.
        """
        secret = written.secret("value", value)
        place = session_place(workspace_id, session_id, resource_id)
        sealed = await self._envelopes.seal(secret.open().encode(), place)
        row = SessionSecretRow(workspace_id, session_id, resource_id, sealed)
        await self._store.put(row, micros(self._clock.now() + _GRACE))

    async def of(self, workspace_id: str, session_id: str, resource_id: str) -> Secret | None:
        """The secret as it is now, or `None`. Raises UNAVAILABLE."""
        sealed = await self._store.get(workspace_id, session_id, resource_id)
        if sealed is None:
            return None
        place = session_place(workspace_id, session_id, resource_id)
        return Secret((await self._envelopes.open(sealed, place)).decode())

    async def copy(
        self, workspace_id: str, session_id: str, to_session_id: str, resource_ids: Iterable[str]
    ) -> None:
        """Keeps what there is of a session's secrets for another one, too. Raises UNAVAILABLE."""
        for resource_id in resource_ids:
            secret = await self.of(workspace_id, session_id, resource_id)
            if secret is not None:
                await self.put(workspace_id, to_session_id, resource_id, secret.open())

    async def forget(self, workspace_id: str, session_id: str, resource_id: str = "") -> None:
        """Removes a resource's secret, or all of a session's."""
        await self._store.forget(workspace_id, session_id, resource_id)

    async def sweep(self, sessions: SessionReader) -> None:
        """Removes the secrets of sessions that are over, now and then, for ever.

        One that was written while its session was being archived would stay otherwise.
        """
        while True:
            try:
                while await self.sweep_some(sessions) >= _BATCH:
                    pass
            except DroverError as error:
                _log.warning("session_secrets_not_swept", reason=error.reason)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def sweep_some(self, sessions: SessionReader) -> int:
        """Asks for some sessions whose time has come; answers how many, 0 if none can be told."""
        now = self._clock.now()
        due = await self._store.due(micros(now), _BATCH)
        told = 0
        for workspace_id, session_id in due:
            try:
                over = await _is_over(sessions, workspace_id, session_id)
            except DroverError as error:
                _log.warning(
                    "session_secrets_postponed", session_id=session_id, reason=error.reason
                )
                await self._store.ask_again(workspace_id, session_id, micros(now + _POSTPONED))
                continue
            told += 1
            if over:
                await self._store.forget(workspace_id, session_id)
                _log.info("session_secrets_removed", session_id=session_id)
            else:
                await self._store.ask_again(workspace_id, session_id, micros(now + _DAILY))
        return len(due) if told else 0


async def _is_over(sessions: SessionReader, workspace_id: str, session_id: str) -> bool:
    """Whether a session has ended, or is not there."""
    try:
        return has_ended(await sessions.get(workspace_id, session_id))
    except DroverError as error:
        if error.reason is Reason.NOT_FOUND:
            return True
        raise
