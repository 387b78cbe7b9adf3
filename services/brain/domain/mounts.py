"""What the model is told of its sandbox's repositories: by the session alone, always alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.session.v1.session_pb2 import GithubRepositoryResource, Session

_BEGINNING: Final = "These repositories are cloned into your sandbox:"
_END: Final = (
    "git fetch, pull and push work there as they are: where a token is needed it is added outside "
    "of the sandbox, and none is inside. A repository that is missing could not be cloned so far."
)


def described(session: Session) -> list[str]:
    """A line for each of the session's repositories, in the order in which they were given."""
    found = (resource.github_repository for resource in session.resources)
    return [_line(repository) for repository in found if repository.url]


def note(lines: Sequence[str]) -> str:
    """What the system prompt says of them."""
    return "\n".join((_BEGINNING, *lines, _END))


def _line(repository: GithubRepositoryResource) -> str:
    line = f"- {repository.url} in {repository.mount_path}"
    if repository.checkout.HasField("branch"):
        return f"{line}, on the branch {repository.checkout.branch.name}"
    if repository.checkout.HasField("commit"):
        return f"{line}, at the commit {repository.checkout.commit.sha}"
    return line
