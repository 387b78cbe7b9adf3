"""Repositories of a session, and what is said of one that could not be cloned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from catalogue.repositories import FORBIDDEN, NOT_FOUND, UNAUTHENTICATED
from drover.event.v1 import session_event_pb2 as pb
from services.hands.domain.toolset import ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

CLONED: Final = "cloned"
"""What the agent answers of one that was not there before."""

_MOST_WORDS: Final = 600
_KINDS: Final = {
    UNAUTHENTICATED: "repository_authentication_error",
    FORBIDDEN: "repository_forbidden_error",
    NOT_FOUND: "repository_not_found_error",
}


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository, where it belongs, and what of it: a branch, a commit, or the host's default."""

    resource_id: str
    url: str
    mount_path: str
    branch: str = ""
    commit: str = ""


def clone(repository: Repository, environment: Mapping[str, str], seconds: float) -> ToolCall:
    """The agent's call that clones it. No tool of a model's has that name."""
    given = {
        "url": repository.url,
        "directory": repository.mount_path,
        "branch": repository.branch,
        "commit": repository.commit,
        "environment": dict(environment),
    }
    return ToolCall("clone", given, seconds)


def failure(repository: Repository, text: str) -> pb.SessionError:
    """What people are told, of what the agent has answered: a stage, and git's words.

    Non-fatal: the session goes on without the repository, and it is tried again (EVENTS §9).
    """
    stage, _, words = text.partition("\n")
    words = words.strip() or stage.strip()
    kind = "repository_checkout_error" if stage == "checkout" else "repository_clone_error"
    for beginning, known in _KINDS.items():
        if beginning in words:
            kind = known
    if len(words) > _MOST_WORDS:
        words = f"…{words[-_MOST_WORDS:]}"
    error = pb.SessionError(
        message=f"{repository.url} is not in {repository.mount_path}: {words}",
        retry_status=pb.RetryStatus(type=pb.RETRY_STATUS_TYPE_RETRYING),
    )
    getattr(error, kind).repository_url = repository.url
    return error
