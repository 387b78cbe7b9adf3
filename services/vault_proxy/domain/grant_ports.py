"""What grants need of a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredAuthority:
    """A session's certificate authority, its key sealed."""

    workspace_id: str
    session_id: str
    certificate: bytes
    sealed_key: bytes
    made_at: datetime


class AuthorityStore(Protocol):
    """Certificate authorities of sessions."""

    async def load(self, workspace_id: str, session_id: str) -> StoredAuthority | None:
        """The session's, if there is one."""
        ...

    async def keep(self, authority: StoredAuthority) -> StoredAuthority:
        """Keeps it where the session has none yet; answers the one that is kept. Durable."""
        ...

    async def due(self, before: datetime, limit: int) -> Sequence[tuple[str, str]]:
        """Workspaces and ids of sessions that were not asked for since `before`."""
        ...

    async def asked(self, session_id: str, at: datetime) -> None:
        """Notes that the session is still there."""
        ...

    async def forget(self, workspace_id: str, session_id: str) -> None:
        """Removes a session's, and another workspace's of that id never."""
        ...


class Revocations(Protocol):
    """Which grants were ended before their time, durably. Times are Unix microseconds."""

    async def revoke(self, workspace_id: str, session_id: str, until: int) -> None:
        """Ends all that were given to the workspace's session until then, for every replica.

        A session of that id which another workspace has keeps its own.
        """
        ...

    async def revoked(self, session_id: str) -> int:
        """Until when all are ended; 0 where none is."""
        ...

    async def forget(self, before: int) -> None:
        """Removes what is older: no grant lives that long."""
        ...
