"""VaultAuditService: the audit trail on the wire."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from chassis.context import current_call
from drover.vault.v1 import vault_audit_service_pb2 as pb
from drover.vault.v1.vault_audit_service_pb2_grpc import VaultAuditServiceServicer
from services.vault_proxy.domain.audit import Outcome
from services.vault_proxy.domain.audit_ports import AuditFilter

if TYPE_CHECKING:
    from services.vault_proxy.domain.audit import AuditEntry
    from services.vault_proxy.domain.audit_ports import AuditStore
    from services.vault_proxy.vault.trail import AuditTrail

_VERDICTS: Final = {
    Outcome.ALLOWED: pb.VAULT_AUDIT_VERDICT_ALLOWED,
    Outcome.DENIED: pb.VAULT_AUDIT_VERDICT_DENIED,
    Outcome.FAILED: pb.VAULT_AUDIT_VERDICT_FAILED,
}
_OPTIONAL: Final = (
    "session_id",
    "hand_id",
    "vault_id",
    "credential_id",
    "method",
    "host",
    "port",
    "path",
    "reason",
)


class AuditRpc(VaultAuditServiceServicer):
    """Serves the trail out of a store, within the calling workspace."""

    def __init__(self, store: AuditStore, trail: AuditTrail) -> None:
        self._store = store
        self._trail = trail

    async def ListVaultAudit(
        self, request: pb.ListVaultAuditRequest, _context: object
    ) -> pb.ListVaultAuditResponse:
        """Lists entries, newest first; what this process has decided so far is among them."""
        await self._trail.flush()
        workspace_id = current_call().workspace_id
        wanted = AuditFilter(request.session_id, request.vault_id, request.credential_id)
        binding = CursorBinding(
            (
                "vault_audit",
                workspace_id,
                wanted.session_id,
                wanted.vault_id,
                wanted.credential_id,
            )
        )
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        before = binding.read(request.page).item_id if request.HasField("page") else ""
        found = await self._store.page(workspace_id, wanted, limit + 1, before)
        entries, last = cut(found, limit)
        answer = pb.ListVaultAuditResponse(data=[_told(*entry) for entry in entries])
        if last is not None:
            answer.next_page = binding.write(Position(0, last[0]))
        return answer


def _told(ident: str, entry: AuditEntry) -> pb.VaultAuditEntry:
    told = pb.VaultAuditEntry(id=ident, kind=str(entry.kind), verdict=_VERDICTS[entry.verdict])
    told.created_at.FromDatetime(entry.at)
    for name in _OPTIONAL:
        if value := getattr(entry, name):
            setattr(told, name, value)
    return told
