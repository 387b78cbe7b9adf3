"""What the audit trail needs of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from services.vault_proxy.domain.audit import AuditEntry


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are asked for; what is empty excludes none."""

    session_id: str = ""
    vault_id: str = ""
    credential_id: str = ""


class AuditStore(Protocol):
    """Entries under ids that sort by time."""

    async def append(self, entries: Sequence[tuple[str, AuditEntry]]) -> None:
        """Adds entries, all or none; durable on return."""
        ...

    async def page(
        self, workspace_id: str, wanted: AuditFilter, limit: int, before: str = ""
    ) -> Sequence[tuple[str, AuditEntry]]:
        """Entries of a workspace, newest first, older than the one with the id `before`."""
        ...

    async def forget(self, before: datetime, most: int) -> int:
        """Removes so many at most of those that are older; answers how many there were."""
        ...
