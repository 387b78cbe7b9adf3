"""Why a request is not let out: a word for programs, a sentence for people.

The same words go to the client, to the log and to the audit trail.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_FAILURES: Final = range(500, 600)


class Why(StrEnum):
    """Reasons of refusals: stable, sent in `x-drover-egress: denied; reason=…`."""

    MALFORMED = "malformed_request"
    HOST_MALFORMED = "host_malformed"
    HOST_MISMATCH = "host_mismatch"
    SNI_MISMATCH = "sni_mismatch"
    HOST_NOT_ALLOWED = "host_not_allowed"
    PORT_NOT_ALLOWED = "port_not_allowed"
    ADDRESS_NOT_ALLOWED = "address_not_allowed"
    OWN_ADDRESS = "own_address"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    UPLOAD_NOT_ALLOWED = "upload_not_allowed"
    REPOSITORY_NOT_ALLOWED = "repository_not_allowed"
    FOREIGN_CREDENTIAL = "foreign_credential"
    PLACEHOLDER_UNKNOWN = "placeholder_unknown"
    CREDENTIAL_UNUSABLE = "credential_unusable"
    GRANT_INVALID = "grant_invalid"
    GRANT_EXPIRED = "grant_expired"
    GRANT_REVOKED = "grant_revoked"
    SESSION_ENDED = "session_ended"
    POLICY_UNAVAILABLE = "policy_unavailable"
    UNREADABLE_ANSWER = "unreadable_answer"
    LIMIT_EXCEEDED = "limit_exceeded"
    TIMEOUT = "timeout"
    HOST_UNREACHABLE = "host_unreachable"
    HOST_TIMEOUT = "host_timeout"
    HOST_UNTRUSTED = "host_untrusted"
    HOST_BROKEN = "host_broken"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is not let out. `message` says why, and what would allow it."""

    reason: Why
    message: str
    status: int = 403

    @property
    def failed(self) -> bool:
        """Whether it is no decision: the same request may be tried again another time."""
        return self.status in _FAILURES


class RefusedError(Exception):
    """Raised where a refusal ends what is under way."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
