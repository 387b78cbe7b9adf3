"""What was decided of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.vault_proxy.domain.refusal import Refusal


@dataclass(frozen=True, slots=True)
class GitRoute:
    """The request is git's, for a repository of the session: the git proxy has it.

    A tunnel that is opened for git alone has one, without a resource: it is never opaque.
    """

    resource_id: str
    upstream: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What of a host's answer the sandbox gets. A `body` stands for the host's own.

    `phrase` is what stands behind the status; without one, what that is commonly called.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes | None = None
    phrase: bytes = b""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Refused, or allowed on its way."""

    refusal: Refusal | None = None
    git: GitRoute | None = None

    @property
    def allowed(self) -> bool:
        """Whether it may go out."""
        return self.refusal is None


@dataclass(frozen=True, slots=True)
class Use:
    """A credential that a request asked for by its placeholder.

    `reason` says why it was not put in; empty where it was.
    """

    vault_id: str
    credential_id: str
    reason: str = ""
