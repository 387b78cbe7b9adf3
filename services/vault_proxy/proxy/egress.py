"""What all connections of the egress proxy share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import structlog

from services.vault_proxy.domain.audit import MAX_PATH, AuditEntry, Kind, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from catalogue.host_list import HostList
    from services.vault_proxy.domain.ports import Audit, GitProxy, Sessions
    from services.vault_proxy.domain.refusal import Refusal
    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.domain.target import Target
    from services.vault_proxy.domain.verdict import Use
    from services.vault_proxy.proxy.limits import Limits
    from services.vault_proxy.proxy.meter import Meter
    from services.vault_proxy.proxy.tls import Leaves
    from services.vault_proxy.proxy.upstream import Upstreams

_log = structlog.get_logger("services.vault_proxy.proxy")


class Asked(NamedTuple):
    """Who asks for what, as far as that is known."""

    facts: SessionFacts | None = None
    target: Target | None = None
    kind: Kind = Kind.EGRESS

    def told(self) -> dict[str, object]:
        """For the log: without the path, which may be anything."""
        told: dict[str, object] = {}
        if self.facts is not None:
            told |= {"session_id": self.facts.session_id, "hand_id": self.facts.hand_id}
        if self.target is not None:
            host, port = self.target.host.text, self.target.port
            told |= {"method": self.target.method, "host": host, "port": port}
        return told


@dataclass(frozen=True, slots=True)
class Egress:
    """The rules, and what has been opened by them. `opaque` hosts' tunnels are not terminated."""

    sessions: Sessions
    git: GitProxy
    audit: Audit
    upstreams: Upstreams
    leaves: Leaves
    opaque: HostList
    limits: Limits
    meter: Meter
    now: Callable[[], datetime]
    seats: Counter[str] = field(default_factory=Counter)
    """Connections by session."""

    def left(self, session_id: str) -> None:
        """Notes that a connection of the session has ended; nothing is kept of one without any."""
        self.seats[session_id] -= 1
        if not self.seats[session_id]:
            del self.seats[session_id]

    async def allowed(self, asked: Asked, used: Use | None = None) -> None:
        """Records that a request goes out: with a credential, or without one that it asked for."""
        if used is not None and used.reason:
            _log.info("credential_not_used", **asked.told(), reason=used.reason)
            await self._record(asked, Outcome.DENIED, used.reason, used)
        else:
            await self._record(asked, Outcome.ALLOWED, "", used)

    async def refused(self, asked: Asked, refusal: Refusal) -> None:
        """Records that a request does not go out, or came to nothing."""
        told = asked.told() | {"status": refusal.status, "message": refusal.message}
        _log.info("egress_refused", **told, reason=refusal.reason)
        verdict = Outcome.FAILED if refusal.failed else Outcome.DENIED
        await self._record(asked, verdict, refusal.reason, None)

    async def _record(self, asked: Asked, verdict: Outcome, reason: str, used: Use | None) -> None:
        self.meter.decided(asked.kind, verdict, reason)
        facts, target = asked.facts, asked.target
        entry = AuditEntry(
            at=self.now(),
            kind=asked.kind,
            verdict=verdict,
            workspace_id="" if facts is None else facts.workspace_id,
            session_id="" if facts is None else facts.session_id,
            hand_id="" if facts is None else facts.hand_id,
            vault_id="" if used is None else used.vault_id,
            credential_id="" if used is None else used.credential_id,
            method="" if target is None else target.method,
            host="" if target is None else target.host.text,
            port=0 if target is None else target.port,
            path="" if target is None else target.path[:MAX_PATH],
            reason=reason,
        )
        await self.audit.record(entry)
