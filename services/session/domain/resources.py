"""What is mounted into a session's sandboxes: repositories, for the session's life (SEMANTICS §8).

A repository's token is in none of what is stored or answered here. It is handed to the vault proxy
before the session is stored, under the session's and the resource's ids.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from catalogue.repositories import RepositoryError, canonical_repository
from chassis.errors import DroverError, Reason
from drover.session.v1 import session_pb2 as pb
from services.session.domain.admission import refuse
from services.session.domain.log import timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from chassis.ids import IdSource
    from drover.environment.v1 import environment_pb2

PREFIX: Final = "sesrsc"
MAX_TOKEN: Final = 8192

_ID: Final = re.compile(rf"{PREFIX}_[0-9A-Za-z_]{{1,100}}\Z")
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
_NOT_YET: Final = {
    "file": "files are not supported by this release",
    "memory_store": "memory stores are not supported by this release",
}


def accept(
    given: Sequence[pb.SessionResource], hosts: Collection[str], ids: IdSource
) -> tuple[tuple[pb.SessionResource, ...], dict[str, str]]:
    """The resources of a new session as they are stored, and tokens by their ids.

    Raises INVALID_ARGUMENT, naming the path.
    """
    accepted, tokens = [], {}
    for index, resource in enumerate(given):
        path, kind = f"resources.{index}", resource.WhichOneof("resource") or ""
        if kind in _NOT_YET:
            raise refuse(path, _NOT_YET[kind])
        asked = resource.github_repository
        kept = _checked(asked, path, hosts)
        kept.id = ids(PREFIX)
        if asked.HasField("authorization_token"):
            check_token(asked.authorization_token, f"{path}.authorization_token")
            tokens[kept.id] = asked.authorization_token
        accepted.append(pb.SessionResource(github_repository=kept))
    _check_apart(accepted)
    return tuple(accepted), tokens


def restore(given: Iterable[pb.SessionResource], path: str) -> tuple[pb.SessionResource, ...]:
    """The resources of an export, of whichever git hosts. Raises INVALID_ARGUMENT."""
    restored = []
    for index, resource in enumerate(given):
        at, told = f"{path}.{index}", resource.github_repository
        if not _ID.match(told.id) or told.HasField("authorization_token"):
            raise refuse(at, "is no repository as sessions have them")
        kept = _checked(told, at, None)
        kept.id = told.id
        kept.created_at.CopyFrom(told.created_at)
        kept.updated_at.CopyFrom(told.updated_at)
        restored.append(pb.SessionResource(github_repository=kept))
    if len({one.github_repository.id for one in restored}) < len(restored):
        raise refuse(path, "two resources have the same id")
    _check_apart(restored)
    return tuple(restored)


def stamp(resources: Iterable[pb.SessionResource], now: int) -> None:
    """Notes when resources were made, in microseconds since 1970."""
    for resource in resources:
        resource.github_repository.created_at.CopyFrom(timestamp(now))
        resource.github_repository.updated_at.CopyFrom(timestamp(now))


def touch(resource: pb.SessionResource, now: int) -> None:
    """Notes that a resource was changed."""
    resource.github_repository.updated_at.CopyFrom(timestamp(now))


def check_token(token: str, path: str) -> None:
    """Raises INVALID_ARGUMENT for what can be no token, without repeating it."""
    if len(token) > MAX_TOKEN or not _TOKEN.match(token):
        raise refuse(path, f"must be 1 to {MAX_TOKEN} visible ASCII characters without spaces")


def find(resources: Iterable[pb.SessionResource], resource_id: str) -> pb.SessionResource:
    """The resource of that id. Raises NOT_FOUND."""
    for resource in resources:
        if resource.github_repository.id == resource_id:
            return resource
    raise DroverError(Reason.NOT_FOUND, f"resource {resource_id} not found")


def check_environment(
    resources: Sequence[pb.SessionResource], environment: environment_pb2.EnvironmentConfig
) -> None:
    """Raises INVALID_ARGUMENT for repositories where workers run the tools: see SEMANTICS §8."""
    if resources and environment.HasField("self_hosted"):
        raise refuse("resources", "a self_hosted environment takes no repositories")


def refuse_more(kind: str) -> DroverError:
    """Why nothing is added to a session that exists."""
    if kind == "file":
        return refuse("type", _NOT_YET[kind])
    return refuse("type", f"a {kind} is given when the session is created, and for its life")


def refuse_less() -> DroverError:
    """Why nothing is taken from one."""
    return refuse("resource_id", "a github_repository stays for the session's life")


def _checked(
    asked: pb.GithubRepositoryResource, path: str, hosts: Collection[str] | None
) -> pb.GithubRepositoryResource:
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


def _check_apart(resources: Sequence[pb.SessionResource]) -> None:
    """Raises INVALID_ARGUMENT for one that is there twice, or lies in the place of another."""
    urls: dict[str, int] = {}
    for index, resource in enumerate(resources):
        first = urls.setdefault(resource.github_repository.url, index)
        if first != index:
            raise refuse(f"resources.{index}.url", f"is that of resources.{first}")
    taken: dict[str, int] = {}
    for index, resource in enumerate(resources):
        taken.setdefault(f"{resource.github_repository.mount_path}/", index)
    for index, resource in enumerate(resources):
        place = f"{resource.github_repository.mount_path}/"
        for other, owner in taken.items():
            if owner != index and place.startswith(other):
                raise refuse(
                    f"resources.{index}.mount_path", f"lies where resources.{owner} is mounted"
                )
