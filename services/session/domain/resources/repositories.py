"""Repositories: mounted for the session's life.

A repository's token is in none of what is stored or answered here. It is handed to the vault proxy
before the session is stored, under the session's and the resource's ids.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from catalogue.repositories import RepositoryError, canonical_repository
from drover.session.v1 import session_pb2 as pb
from services.session.domain.admission import refuse
from services.session.domain.log import timestamp

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_TOKEN: Final = 8192

_MOUNTS: Final = "/workspace/"
_MAX_PATH: Final = 1024
_MAX_SEGMENT: Final = 255
_MAX_BRANCH: Final = 244
_COMMIT: Final = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_TOKEN: Final = re.compile(r"[!-~]+\Z")
# git-check-ref-format(1), and nothing that a program takes for an option.
_NO_BRANCH: Final = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[-/]|/$|\.$|(^|/)\.|\.lock(/|$)|^@$"
)


def checked(
    asked: pb.GithubRepositoryResource, path: str, hosts: Collection[str] | None
) -> pb.GithubRepositoryResource:
    """A repository as it is stored, without an id; of any host where none are named.

    Raises INVALID_ARGUMENT.
    """
    try:
        url = canonical_repository(asked.url, hosts)
    except RepositoryError as error:
        raise refuse(f"{path}.url", str(error)) from None
    name = url.rpartition("/")[2]
    mount_path = asked.mount_path if asked.HasField("mount_path") else f"{_MOUNTS}{name}"
    _check_mount_path(mount_path, f"{path}.mount_path")
    kept = pb.GithubRepositoryResource(url=url, mount_path=mount_path)
    if asked.HasField("checkout"):
        _check_checkout(asked.checkout, f"{path}.checkout")
        kept.checkout.CopyFrom(asked.checkout)
    return kept


def touch(resource: pb.SessionResource, now: int) -> None:
    """Notes that a repository was changed."""
    resource.github_repository.updated_at.CopyFrom(timestamp(now))


def check_takes_token(resource: pb.SessionResource) -> None:
    """Raises INVALID_ARGUMENT for a resource that is no repository."""
    if not resource.HasField("github_repository"):
        raise refuse("resource_id", "only a github_repository has a token")


def check_token(token: str, path: str) -> None:
    """Raises INVALID_ARGUMENT for what can be no token, without repeating it."""
    if len(token) > MAX_TOKEN or not _TOKEN.match(token):
        raise refuse(path, f"must be 1 to {MAX_TOKEN} visible ASCII characters without spaces")


def _check_mount_path(text: str, path: str) -> None:
    segments = text.removeprefix(_MOUNTS).split("/")
    if not text.startswith(_MOUNTS) or len(text) > _MAX_PATH or not text.isprintable():
        raise refuse(path, f"must be a path below {_MOUNTS[:-1]}, such as {_MOUNTS}repository")
    for segment in segments:
        if segment in {"", ".", ".."} or len(segment.encode()) > _MAX_SEGMENT:
            raise refuse(path, "must have neither empty parts nor dots for parts")
        if segment.lower() == ".git":
            raise refuse(path, "must not lie in a .git directory")


def _check_checkout(checkout: pb.Checkout, path: str) -> None:
    if checkout.HasField("commit"):
        if not _COMMIT.match(checkout.commit.sha):
            raise refuse(f"{path}.sha", "must be a commit's whole hash, in lower case")
        return
    name = checkout.branch.name
    if not name or len(name.encode()) > _MAX_BRANCH or _NO_BRANCH.search(name):
        raise refuse(f"{path}.name", "must be a branch's name, as git takes it")
