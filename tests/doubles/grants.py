"""Grants of sessions that a test makes up, over stores in memory and a clock that it winds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from catalogue.package_hosts import package_hosts
from chassis.errors import DroverError, Reason
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.domain.addresses import AddressRules
from services.vault_proxy.domain.audit import AuditEntry
from services.vault_proxy.domain.grant_ports import StoredAuthority
from services.vault_proxy.domain.policy import Installation
from services.vault_proxy.domain.session import EnvironmentCredential
from services.vault_proxy.grants.authority import Authorities
from services.vault_proxy.grants.giving import Giving, Leftovers
from services.vault_proxy.grants.known import KnownSessions
from services.vault_proxy.grants.sessions import GrantedSessions
from tests.doubles.egress import KEY, NoRepositories, session

WORKSPACE = "wrkspc_1"
SIGNING = b"s" * 32


class WoundClock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return 1000.0 + self.passed


class MemoryAuthorities:
    """Implements `AuthorityStore`."""

    def __init__(self) -> None:
        self.kept: dict[str, StoredAuthority] = {}
        self.asked_at: dict[str, datetime] = {}

    async def load(self, workspace_id: str, session_id: str) -> StoredAuthority | None:
        found = self.kept.get(session_id)
        return found if found is not None and found.workspace_id == workspace_id else None

    async def keep(self, authority: StoredAuthority) -> StoredAuthority:
        self.asked_at.setdefault(authority.session_id, authority.made_at)
        return self.kept.setdefault(authority.session_id, authority)

    async def due(self, before: datetime, limit: int) -> Sequence[tuple[str, str]]:
        due = [one for one in self.kept.values() if self.asked_at[one.session_id] <= before]
        return [(one.workspace_id, one.session_id) for one in due[:limit]]

    async def asked(self, session_id: str, at: datetime) -> None:
        self.asked_at[session_id] = at

    async def forget(self, workspace_id: str, session_id: str) -> None:
        if await self.load(workspace_id, session_id) is not None:
            del self.kept[session_id]


class MemoryRevocations:
    """Implements `Revocations`. Those of `authorities` have grants."""

    def __init__(self, authorities: MemoryAuthorities | None = None) -> None:
        self.authorities = authorities or MemoryAuthorities()
        self.until: dict[str, int] = {}

    async def revoke(self, workspace_id: str, session_id: str, until: int) -> None:
        known = self.authorities.kept.get(session_id)
        if known is not None and known.workspace_id != workspace_id:
            return
        self.until[session_id] = max(until, self.until.get(session_id, 0))

    async def revoked(self, session_id: str) -> int:
        return self.until.get(session_id, 0)

    async def forget(self, before: int) -> None:
        self.until = {one: until for one, until in self.until.items() if until >= before}


class PlainSealer:
    """Seals nothing, but minds what it is bound to."""

    async def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        return bound_to + b"|" + plain

    async def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        assert sealed.startswith(bound_to + b"|")
        return sealed.removeprefix(bound_to + b"|")


@dataclass
class GrantWorld:
    """What the vault proxy believes, is told, and has told. May be changed at any time."""

    sessions: dict[str, Session] = field(default_factory=lambda: {"sesn_1": session()})
    vault: list[EnvironmentCredential] = field(default_factory=list)
    """The credentials of whatever vaults a session has."""
    changes: int = 0
    failure: DroverError | None = None
    """What SessionService answers instead of sessions."""
    asked: int = 0
    trail: list[AuditEntry] = field(default_factory=list)
    clock: WoundClock = field(default_factory=WoundClock)
    stored: MemoryAuthorities = field(default_factory=MemoryAuthorities)
    revocations: MemoryRevocations = field(default_factory=MemoryRevocations)

    def __post_init__(self) -> None:
        self.authorities = Authorities(self.stored, PlainSealer(), self.clock)
        self.known = KnownSessions(
            reader=self,
            credentials=self,
            revocations=self.revocations,
            package_hosts=package_hosts(""),
            key=KEY,
            clock=self.clock,
        )
        self.giving = Giving(
            known=self.known,
            authorities=self.authorities,
            revocations=self.revocations,
            audit=self,
            key=SIGNING,
            clock=self.clock,
        )
        self.granted = self.another_process(self.known)
        self.leftovers = Leftovers(self.stored, self.revocations, self, self.clock)

    def another_process(self, known: KnownSessions) -> GrantedSessions:
        """What takes grants that this process gives."""
        return GrantedSessions(
            known=known,
            installation=Installation.of(AddressRules(()), package_hosts("")),
            git=NoRepositories(),
            authorities=self.authorities,
            key=SIGNING,
            clock=self.clock,
        )

    async def give(self, session_id: str = "sesn_1", hand_id: str = "hand_1") -> str:
        """A grant for a hand."""
        return (await self.giving.open(WORKSPACE, session_id, hand_id)).grant

    def change(self, *credentials: EnvironmentCredential) -> None:
        """Has the vaults hold these from now on, as a change in this process."""
        self.vault = [*credentials]
        self.changes += 1

    # ---- the ports ----

    async def get(self, workspace_id: str, session_id: str) -> Session:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        found = self.sessions.get(session_id)
        if found is None or workspace_id != WORKSPACE:
            raise DroverError(Reason.NOT_FOUND, "no such session")
        copy = Session()
        copy.CopyFrom(found)
        return copy

    async def environment_credentials(
        self, workspace_id: str, vault_ids: Sequence[str]
    ) -> Sequence[EnvironmentCredential]:
        return tuple(self.vault) if vault_ids else ()

    def revision(self) -> int:
        return self.changes

    async def record(self, entry: AuditEntry) -> None:
        self.trail.append(entry)
