"""Grants are given to hands, renewed, and taken back."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.event.v1.session_event_pb2 import (
    RETRY_STATUS_TYPE_RETRYING,
    CredentialHostError,
    RetryStatus,
    SessionError,
)
from drover.vault.v1.credential_proxy_service_pb2 import (
    MountedRepository,
    OpenGrantResponse,
    PlaceholderVariable,
)
from services.vault_proxy.domain.audit import AuditEntry, Kind, Outcome
from services.vault_proxy.domain.grant import LIFE_SECONDS, new_grant, sign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chassis.clock import Clock
    from drover.session.v1.session_pb2 import Session
    from services.vault_proxy.domain.grant_ports import AuthorityStore, Revocations
    from services.vault_proxy.domain.ports import Audit, SessionReader
    from services.vault_proxy.grants.authority import Authorities
    from services.vault_proxy.grants.known import Known, KnownSessions

_MICRO: Final = 1_000_000
_SKEW_SECONDS: Final = 5
"""By how much clocks of replicas may differ: what one gave, another takes back."""
_KEPT: Final = timedelta(days=1)
"""Longer than any connection that began with a grant."""
_DAILY: Final = timedelta(days=1)
_POSTPONED: Final = timedelta(minutes=5)
"""When one that cannot be asked for now is asked for again: nobody waits behind it."""
_SWEEP_SECONDS: Final = 600.0
_BATCH: Final = 100

_log = structlog.get_logger("vault_proxy.grants")


class Giving:
    """Gives grants, and takes them back."""

    def __init__(
        self,
        *,
        known: KnownSessions,
        authorities: Authorities,
        revocations: Revocations,
        audit: Audit,
        key: bytes,
        clock: Clock,
    ) -> None:
        self._known = known
        self._authorities = authorities
        self._revocations = revocations
        self._audit = audit
        self._key = key
        self._clock = clock

    async def open(self, workspace_id: str, session_id: str, hand_id: str) -> OpenGrantResponse:
        """A grant for a hand, or a later one. Raises `DroverError`: NOT_FOUND, ARCHIVED."""
        # Before the session is asked for: one that is deleted meanwhile is found to be gone here,
        # or has what was made for it removed at its end.
        authority = await self._authorities.of(workspace_id, session_id)
        try:
            known = await self._known.get(workspace_id, session_id, now=True)
        except DroverError as error:
            if error.reason is Reason.NOT_FOUND:
                await self._authorities.forget(workspace_id, session_id)
            await self._record(workspace_id, session_id, hand_id, error.reason.lower())
            raise
        if known.ended:
            await self._authorities.forget(workspace_id, session_id)
            await self._record(workspace_id, session_id, hand_id, "session_ended")
            raise DroverError(
                Reason.ARCHIVED, f"session {session_id} is archived or terminated: it gets no grant"
            )
        now = max(micros(self._clock.now()), known.revoked_until + 1)
        grant = new_grant(
            session_id=session_id,
            hand_id=hand_id,
            workspace_id=workspace_id,
            vault_ids=known.session.vault_ids,
            now=now,
        )
        await self._record(workspace_id, session_id, hand_id)
        answer = OpenGrantResponse(
            grant=sign(self._key, grant),
            ca_certificate=authority.certificate.decode(),
            variables=[
                PlaceholderVariable(name=one.name, placeholder=text.decode())
                for text, one in known.holdings.placeholders
            ],
            problems=problems(known),
            repositories=_repositories(known.session),
        )
        answer.expires_at.FromMicroseconds(now + LIFE_SECONDS * _MICRO)
        return answer

    async def revoke(self, workspace_id: str, session_id: str) -> None:
        """Ends every grant that the session was given until now. Raises `DroverError`."""
        until = micros(self._clock.now()) + _SKEW_SECONDS * _MICRO
        await self._revocations.revoke(workspace_id, session_id, until)
        self._known.forget(workspace_id, session_id)
        _log.info("grants_revoked", session_id=session_id)

    async def _record(
        self, workspace_id: str, session_id: str, hand_id: str, reason: str = ""
    ) -> None:
        await self._audit.record(
            AuditEntry(
                at=self._clock.now(),
                kind=Kind.GRANT,
                verdict=Outcome.DENIED if reason else Outcome.ALLOWED,
                workspace_id=workspace_id,
                session_id=session_id,
                hand_id=hand_id,
                reason=reason,
            )
        )


class Leftovers:
    """Removes what is kept for sessions that are no more, now and then, for ever."""

    def __init__(
        self,
        authorities: AuthorityStore,
        revocations: Revocations,
        sessions: SessionReader,
        clock: Clock,
    ) -> None:
        self._authorities = authorities
        self._revocations = revocations
        self._sessions = sessions
        self._clock = clock

    async def sweep(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            try:
                while await self.sweep_some() >= _BATCH:
                    pass
            except DroverError as error:
                _log.warning("grants_not_swept", reason=error.reason)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def sweep_some(self) -> int:
        """Asks for some sessions that were not asked for in a day; answers how many.

        0 where not one of them could be told.
        """
        now = self._clock.now()
        await self._revocations.forget(micros(now - _KEPT))
        due = await self._authorities.due(now - _DAILY, _BATCH)
        told = 0
        for workspace_id, session_id in due:
            try:
                await self._sessions.get(workspace_id, session_id)
            except DroverError as error:
                if error.reason is not Reason.NOT_FOUND:
                    _log.warning("grants_postponed", session_id=session_id, reason=error.reason)
                    await self._authorities.asked(session_id, now - _DAILY + _POSTPONED)
                    continue
                await self._authorities.forget(workspace_id, session_id)
            else:
                await self._authorities.asked(session_id, now)
            told += 1
        return len(due) if told else 0


def problems(known: Known) -> Iterator[SessionError]:
    """Credentials that are bound to hosts which the session may not reach."""
    for credential in known.credentials:
        closed = [
            host for host in credential.allowed_hosts or () if not known.networking.meets(host)
        ]
        if closed:
            yield SessionError(
                message=(
                    f"credential {credential.name} ({credential.id}) is bound to "
                    f"{', '.join(closed)}, which the environment's networking does not allow: list "
                    "it in config.networking.allowed_hosts of the environment"
                ),
                retry_status=RetryStatus(type=RETRY_STATUS_TYPE_RETRYING),
                credential_host_unreachable_error=CredentialHostError(
                    vault_id=credential.vault_id, credential_id=credential.id
                ),
            )


def _repositories(session: Session) -> Iterator[MountedRepository]:
    for resource in session.resources:
        repository = resource.github_repository
        if not repository.id:
            continue
        yield MountedRepository(
            resource_id=repository.id,
            url=repository.url,
            mount_path=repository.mount_path,
            branch=repository.checkout.branch.name,
            commit=repository.checkout.commit.sha,
        )
