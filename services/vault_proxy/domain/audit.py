"""Entries of the audit trail: who used what for which session towards where, never the value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

MAX_PATH = 512
"""Characters of a path that are kept."""


class Kind(StrEnum):
    """What was asked for."""

    EGRESS = "egress"
    GIT = "git"
    MCP = "mcp"
    WEB = "web"
    OAUTH = "oauth"
    GRANT = "grant"


class Outcome(StrEnum):
    """What was decided."""

    ALLOWED = "allowed"
    DENIED = "denied"
    FAILED = "failed"  # allowed, and failed on its way


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One decision. `path` is without its query; what does not apply is empty.

    `credential_id` and `vault_id` name the credential that was put in, or that was asked for where
    it was not.
    """

    at: datetime
    kind: Kind
    verdict: Outcome
    workspace_id: str
    session_id: str
    hand_id: str = ""
    vault_id: str = ""
    credential_id: str = ""
    method: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    reason: str = ""
