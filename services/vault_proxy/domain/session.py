"""What is known of a session that asks, and of the credentials that it may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drover.session.v1.session_pb2 import SESSION_STATUS_TERMINATED

if TYPE_CHECKING:
    from chassis.secret import Secret
    from drover.session.v1.session_pb2 import Session


def has_ended(session: Session) -> bool:
    """Whether nothing may be done for a session any more, for good."""
    return session.HasField("archived_at") or session.status == SESSION_STATUS_TERMINATED


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A session as SessionService last told of it, and the hand that asks."""

    workspace_id: str
    hand_id: str
    session: Session

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.session.id


@dataclass(frozen=True, slots=True)
class SessionAuthority:
    """A session's certificate authority: both in PEM, the key unencrypted."""

    session_id: str
    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class EnvironmentCredential:
    """A live `environment_variable` credential of one of a session's vaults.

    `allowed_hosts` are patterns in canonical form; `None` binds it to no host (`unrestricted`).
    """

    id: str
    vault_id: str
    name: str
    value: Secret
    allowed_hosts: tuple[str, ...] | None
    in_header: bool
    in_body: bool
