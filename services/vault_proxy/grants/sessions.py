"""What grants open: the policy of their sessions, as of now."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from services.vault_proxy.domain.grant import ENDED, EXPIRED, REVOKED, verified
from services.vault_proxy.domain.policy import EgressPolicy
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.domain.session import SessionFacts
from services.vault_proxy.domain.substitution import RequestSubstitution

if TYPE_CHECKING:
    from chassis.clock import Clock
    from services.vault_proxy.domain.grant import Grant
    from services.vault_proxy.domain.policy import Installation
    from services.vault_proxy.domain.ports import GitRules
    from services.vault_proxy.domain.session import SessionAuthority
    from services.vault_proxy.domain.target import Target
    from services.vault_proxy.domain.verdict import Verdict
    from services.vault_proxy.grants.authority import Authorities
    from services.vault_proxy.grants.known import Known, KnownSessions

_LONGEST_SECONDS: Final = 12 * 3600
"""How long a connection may go on with the grant that it began with."""
_MICRO: Final = 1_000_000
_MOST: Final = 4_096
"""Grants that are remembered as genuine."""


@dataclass(frozen=True, slots=True)
class LivePolicy:
    """See `domain.ports.SessionPolicy`."""

    facts: SessionFacts
    rules: EgressPolicy
    known: Known
    authorities: Authorities

    def decide(self, target: Target) -> Verdict:
        """As the port says."""
        return self.rules.decide(target)

    def substitution(self, target: Target) -> RequestSubstitution:
        """As the port says."""
        return RequestSubstitution(self.known.holdings, target)

    async def authority(self) -> SessionAuthority:
        """As the port says. Raises `RefusedError`."""
        try:
            whose = (self.facts.workspace_id, self.facts.session_id)
            authority = await self.authorities.existing(*whose)
        except DroverError as error:
            raise RefusedError(_unknown(error)) from error
        if authority is None:  # it was made before the grant was, and goes with the session
            raise RefusedError(ENDED)
        return authority


class GrantedSessions:
    """See `domain.ports.Sessions`."""

    def __init__(
        self,
        *,
        known: KnownSessions,
        installation: Installation,
        git: GitRules,
        authorities: Authorities,
        key: bytes,
        clock: Clock,
    ) -> None:
        self._known = known
        self._installation = installation
        self._git = git
        self._authorities = authorities
        self._key = key
        self._clock = clock
        self._seen: OrderedDict[bytes, Grant] = OrderedDict()

    async def of_grant(self, grant: str) -> LivePolicy:
        """What the grant's session may do now. Raises `RefusedError`."""
        return await self._opened(self._read(grant, self._now()))

    async def again(self, grant: str) -> LivePolicy:
        """The same for a connection that began with the grant. Raises `RefusedError`."""
        return await self._opened(self._read(grant, self._now() - _LONGEST_SECONDS * _MICRO))

    def _read(self, text: str, now: int) -> Grant:
        """What a grant says. Raises `RefusedError`."""
        # By their digests: a look-up by the text itself would take longer the more of it is right.
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        if (grant := self._seen.get(digest)) is None:
            grant = self._seen[digest] = verified(self._key, text)
            while len(self._seen) > _MOST:
                self._seen.popitem(last=False)
        if now >= grant.expires_at:
            raise RefusedError(EXPIRED)
        return grant

    async def _opened(self, grant: Grant) -> LivePolicy:
        try:
            known = await self._known.get(grant.workspace_id, grant.session_id)
        except DroverError as error:
            if error.reason is Reason.NOT_FOUND:
                raise RefusedError(ENDED) from error
            raise RefusedError(_unknown(error)) from error
        if known.ended:
            raise RefusedError(ENDED)
        if grant.given_at <= known.revoked_until or grant.vaults != known.vaults:
            raise RefusedError(REVOKED)
        facts = SessionFacts(grant.workspace_id, grant.hand_id, known.session)
        rules = EgressPolicy(self._installation, known.networking, facts, self._git)
        return LivePolicy(facts, rules, known, self._authorities)

    def _now(self) -> int:
        return micros(self._clock.now())


def _unknown(error: DroverError) -> Refusal:
    return Refusal(
        Why.POLICY_UNAVAILABLE,
        f"nothing is let out while that is not known: {error.message}. Try again later",
        503,
    )
