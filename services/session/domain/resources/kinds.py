"""What resources of all kinds have in common: ids, stamps, and where they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.session.v1 import session_pb2 as pb
from services.session.domain.admission import refuse
from services.session.domain.log import timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drover.environment.v1 import environment_pb2

PREFIX: Final = "sesrsc"


def identified(
    resource: pb.SessionResource,
) -> pb.FileResource | pb.GithubRepositoryResource | None:
    """The part of a resource that has an id and times: memory stores have neither."""
    if resource.HasField("file"):
        return resource.file
    return resource.github_repository if resource.HasField("github_repository") else None


def stamp(resources: Iterable[pb.SessionResource], now: int) -> None:
    """Notes when resources were made, in microseconds since 1970."""
    for resource in resources:
        if (one := identified(resource)) is not None:
            one.created_at.CopyFrom(timestamp(now))
            one.updated_at.CopyFrom(timestamp(now))


def find(resources: Iterable[pb.SessionResource], resource_id: str) -> pb.SessionResource:
    """The resource of that id. Raises NOT_FOUND."""
    for resource in resources:
        if (one := identified(resource)) is not None and one.id == resource_id:
            return resource
    raise DroverError(Reason.NOT_FOUND, f"resource {resource_id} not found")


def name(resource: pb.SessionResource) -> str:
    """What no other resource of its session is called."""
    one = identified(resource)
    return resource.memory_store.memory_store_id if one is None else one.id


def behind(resources: Sequence[pb.SessionResource], *place: str | int | None) -> int:
    """Where a list goes on behind a place: the number of what came before, and the last one's name.

    What was taken away meanwhile leaves nothing out.
    """
    number, last = int(place[0] or 0), place[1] if len(place) > 1 else None
    for index, resource in enumerate(resources):
        if name(resource) == last:
            return index + 1
    return number if last is None else max(0, number - 1)


def repositories(resources: Iterable[pb.SessionResource]) -> list[pb.GithubRepositoryResource]:
    """Those that are repositories."""
    return [one.github_repository for one in resources if one.HasField("github_repository")]


def files(resources: Iterable[pb.SessionResource]) -> list[pb.FileResource]:
    """Those that are files."""
    return [one.file for one in resources if one.HasField("file")]


def check_environment(
    resources: Iterable[pb.SessionResource],
    environment: environment_pb2.EnvironmentConfig,
    path: str = "resources",
) -> None:
    """Raises INVALID_ARGUMENT for what workers' machines are not given: see SEMANTICS §8."""
    if environment.HasField("self_hosted") and any(map(identified, resources)):
        raise refuse(
            path, "a self_hosted environment takes memory stores only: no files, no repositories"
        )
