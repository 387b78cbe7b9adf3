"""What is kept of every use of an MCP server and its credential: entries of the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from services.vault_proxy.domain.audit import MAX_PATH, AuditEntry, Kind, Outcome
from services.vault_proxy.mcp.exchange import Fault
from services.vault_proxy.oauth.endpoint import ExchangeRefusedError

if TYPE_CHECKING:
    from chassis.clock import Clock
    from services.vault_proxy.domain.ports import Audit
    from services.vault_proxy.domain.server_credential import ServerCredential
    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.mcp.meter import McpMeter
    from services.vault_proxy.oauth.tokens import Refreshed

_DENIED: Final = frozenset({Fault.FORBIDDEN, Fault.NOT_ALLOWED, Fault.UNAUTHENTICATED})
_ALLOWED: Final = frozenset({"", "error_answered", "interrupted"})
"""Reasons of what was let through, and did not fail on its way."""
_PORTS: Final = {"https": 443, "http": 80}


class Records:
    """Writes them, in the name of a session, or of none for a probe."""

    def __init__(self, audit: Audit, clock: Clock, meter: McpMeter) -> None:
        self._audit = audit
        self._clock = clock
        self._meter = meter

    async def request(
        self,
        facts: SessionFacts,
        url: str,
        method: str,
        credential: ServerCredential | None,
        reason: str,
    ) -> None:
        """A list or a call; `reason` is empty where it was answered with a result."""
        who = _Who(facts.workspace_id, facts.session_id, facts.hand_id)
        await self._write(Kind.MCP, who, (method, url), credential, reason)

    async def refresh(
        self, workspace_id: str, session_id: str, hand_id: str, ended: Refreshed
    ) -> None:
        """An exchange of a refresh token."""
        reason = exchange_reason(ended.error)
        self._meter.refreshed(reason or "refreshed")
        refresh = ended.credential.refresh
        url = refresh.token_endpoint if refresh is not None else ""
        who = _Who(workspace_id, session_id, hand_id)
        await self._write(Kind.OAUTH, who, ("POST", url), ended.credential, reason)

    async def probe(
        self, workspace_id: str, credential: ServerCredential, url: str, reason: str
    ) -> None:
        """A credential that was tried for its owner."""
        who = _Who(workspace_id)
        await self._write(Kind.MCP, who, ("mcp_oauth_validate", url), credential, reason)

    async def _write(
        self,
        kind: Kind,
        who: _Who,
        what: tuple[str, str],
        credential: ServerCredential | None,
        reason: str,
    ) -> None:
        method, url = what
        parts = urlsplit(url)
        await self._audit.record(
            AuditEntry(
                at=self._clock.now(),
                kind=kind,
                verdict=_verdict(reason),
                workspace_id=who.workspace_id,
                session_id=who.session_id,
                hand_id=who.hand_id,
                vault_id=credential.vault_id if credential is not None else "",
                credential_id=credential.id if credential is not None else "",
                method=method,
                host=parts.hostname or "",
                port=parts.port or _PORTS.get(parts.scheme, 0),
                path=parts.path[:MAX_PATH],
                reason=reason,
            )
        )


def exchange_reason(error: Exception | None) -> str:
    """How an exchange with a token endpoint failed; empty where it did not."""
    if isinstance(error, ExchangeRefusedError):
        return "token_endpoint_refused"
    return "" if error is None else "token_endpoint_failed"


def _verdict(reason: str) -> Outcome:
    if reason in _DENIED:
        return Outcome.DENIED
    return Outcome.ALLOWED if reason in _ALLOWED else Outcome.FAILED


@dataclass(frozen=True, slots=True)
class _Who:
    workspace_id: str
    session_id: str = ""
    hand_id: str = ""
