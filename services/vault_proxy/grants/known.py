"""What is known of sessions, never older than allowed (case E16)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from services.vault_proxy.domain.grant import told
from services.vault_proxy.domain.holdings import Holdings
from services.vault_proxy.domain.networking import networking_of
from services.vault_proxy.domain.session import has_ended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chassis.clock import Clock
    from drover.session.v1.session_pb2 import Session
    from services.vault_proxy.domain.grant_ports import Revocations
    from services.vault_proxy.domain.networking import Networking
    from services.vault_proxy.domain.ports import Credentials, SessionReader
    from services.vault_proxy.domain.session import EnvironmentCredential

FRESH_SECONDS: Final = 0.5
"""Within this nothing is asked again; with what the vault remembers it is less than a second."""
STALE_SECONDS: Final = 10.0
"""While SessionService does not answer, its last word stands for so long."""
_MOST: Final = 4_096
_PASSING: Final = frozenset(
    {Reason.UNAVAILABLE, Reason.DEADLINE_EXCEEDED, Reason.RESOURCE_EXHAUSTED, Reason.INTERNAL}
)

_log = structlog.get_logger("vault_proxy.grants")


@dataclass(frozen=True, slots=True)
class Known:
    """A session, and what follows from it. `revoked_until`: Unix microseconds."""

    session: Session
    vaults: str
    """Its list of vaults, as grants tell it."""
    networking: Networking
    credentials: Sequence[EnvironmentCredential]
    holdings: Holdings
    revoked_until: int

    @property
    def ended(self) -> bool:
        """Whether nothing may be done for it any more."""
        return has_ended(self.session)


@dataclass(slots=True)
class _Entry:
    known: Known | None = None
    gone: bool = False
    revision: int = -1
    checked_at: float = 0.0
    heard_at: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class KnownSessions:
    """Asks SessionService and the vault about sessions, one at a time for each of them."""

    def __init__(
        self,
        *,
        reader: SessionReader,
        credentials: Credentials,
        revocations: Revocations,
        package_hosts: Mapping[str, Sequence[str]],
        key: bytes,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._credentials = credentials
        self._revocations = revocations
        self._package_hosts = package_hosts
        self._key = key
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()

    async def get(self, workspace_id: str, session_id: str, *, now: bool = False) -> Known:
        """What is known; with `now` it is asked for anew.

        Raises `DroverError`: NOT_FOUND, and UNAVAILABLE where nothing is known that still counts.
        """
        entry = self._entry(workspace_id, session_id)
        if now or not self._is_fresh(entry):
            asked_at = self._clock.monotonic()
            async with entry.turn:
                # Whoever had the turn before may have asked after this request came.
                if not self._is_fresh(entry) or (now and entry.checked_at < asked_at):
                    await self._renew(entry, workspace_id, session_id)
        if entry.known is None or entry.gone:
            raise _not_found(session_id)
        return entry.known

    def forget(self, workspace_id: str, session_id: str) -> None:
        """Has the session be asked for at its next request."""
        if (entry := self._entries.get((workspace_id, session_id))) is not None:
            entry.revision = -1

    def _entry(self, workspace_id: str, session_id: str) -> _Entry:
        key = (workspace_id, session_id)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            while len(self._entries) > _MOST:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        return entry

    def _is_fresh(self, entry: _Entry) -> bool:
        if entry.revision != self._credentials.revision():
            return False
        return self._clock.monotonic() - entry.checked_at < FRESH_SECONDS

    async def _renew(self, entry: _Entry, workspace_id: str, session_id: str) -> None:
        # The counter first: what is changed while all is read makes it stale again.
        revision, started = self._credentials.revision(), self._clock.monotonic()
        session = await self._session(entry, workspace_id, session_id, started)
        if session is not None:
            vaults = [] if session.environment.HasField("self_hosted") else session.vault_ids
            credentials = await self._credentials.environment_credentials(workspace_id, vaults)
            revoked = await self._revocations.revoked(session_id)
            entry.known = self._made(entry.known, session, credentials, revoked)
        entry.gone = session is None
        entry.revision, entry.checked_at = revision, started

    async def _session(
        self, entry: _Entry, workspace_id: str, session_id: str, started: float
    ) -> Session | None:
        try:
            session = await self._reader.get(workspace_id, session_id)
        except DroverError as error:
            if error.reason is Reason.NOT_FOUND:
                return None
            since = self._clock.monotonic() - entry.heard_at
            if error.reason not in _PASSING or entry.known is None or since > STALE_SECONDS:
                _log.warning("session_unknown", session_id=session_id, reason=error.reason)
                raise DroverError(
                    Reason.UNAVAILABLE,
                    "what the session may do cannot be found out: SessionService does not answer",
                ) from error
            _log.info("session_stale", session_id=session_id, reason=error.reason)
            return entry.known.session
        entry.heard_at = started
        return session

    def _made(
        self,
        before: Known | None,
        session: Session,
        credentials: Sequence[EnvironmentCredential],
        revoked: int,
    ) -> Known:
        """What was made for the same is kept: tables of what to strike out are dear."""
        if before is not None and before.session == session:
            session, networking = before.session, before.networking
        else:
            networking = networking_of(session, self._package_hosts)
        if before is not None and _same(before.credentials, credentials):
            credentials, holdings = before.credentials, before.holdings
        else:
            holdings = Holdings(self._key, session.id, credentials)
        vaults = told(session.vault_ids)
        return Known(session, vaults, networking, credentials, holdings, revoked)


def _same(one: Sequence[EnvironmentCredential], other: Sequence[EnvironmentCredential]) -> bool:
    return len(one) == len(other) and all(
        _told(mine) == _told(theirs) for mine, theirs in zip(one, other, strict=True)
    )


def _told(credential: EnvironmentCredential) -> tuple[object, ...]:
    return (
        credential.id,
        credential.vault_id,
        credential.name,
        credential.value.open(),
        credential.allowed_hosts,
        credential.in_header,
        credential.in_body,
    )


def _not_found(session_id: str) -> DroverError:
    return DroverError(Reason.NOT_FOUND, f"session {session_id} was not found")
