"""What a session is given when it is created, or brings with it when it is imported."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drover.session.v1 import session_pb2 as pb
from services.session.domain.admission import refuse
from services.session.domain.resources import files, memory_stores, repositories
from services.session.domain.resources.kinds import PREFIX, identified
from services.session.domain.resources.places import Places

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from chassis.ids import IdSource
    from drover.memory.v1 import memory_pb2

_ID: Final = re.compile(rf"{PREFIX}_[0-9A-Za-z_]{{1,100}}\Z")
_FILE_ID: Final = re.compile(r"file_[0-9A-Za-z_]{1,100}\Z")


@dataclass(slots=True)
class Given:
    """The resources of a new session as they are stored, and what must be done for them first.

    `tokens` are by the resources' ids. `copies` are to be made. Until `fill` was told what the
    memory stores are, those are not whole.
    """

    resources: tuple[pb.SessionResource, ...] = ()
    tokens: dict[str, str] = field(default_factory=dict)
    copies: list[files.Copy] = field(default_factory=list)

    @property
    def stores(self) -> list[str]:
        """The ids of the memory stores."""
        found = (one.memory_store.memory_store_id for one in self.resources)
        return [store for store in found if store]

    def fill(self, stores: Mapping[str, memory_pb2.MemoryStore]) -> None:
        """Takes note of what the stores are. Raises NOT_FOUND for one that is not, and ARCHIVED."""
        memory_stores.fill(self.resources, stores)


def accept(given: Sequence[pb.SessionResource], hosts: Collection[str], ids: IdSource) -> Given:
    """The resources of a new session, of these git hosts.

    Raises INVALID_ARGUMENT, naming the path, and NOT_FOUND for what can be no file or store.
    """
    accepted, kept = Given(), []
    for index, resource in enumerate(given):
        path = f"resources.{index}"
        if resource.HasField("file"):
            copy = files.accept(resource.file, path, ids)
            accepted.copies.append(copy)
            kept.append(pb.SessionResource(file=copy.resource))
        elif resource.HasField("memory_store"):
            store = memory_stores.accept(resource.memory_store, path)
            kept.append(pb.SessionResource(memory_store=store))
        else:
            asked = resource.github_repository
            repository = repositories.checked(asked, path, hosts)
            repository.id = ids(PREFIX)
            if asked.HasField("authorization_token"):
                token = asked.authorization_token
                repositories.check_token(token, f"{path}.authorization_token")
                accepted.tokens[repository.id] = token
            kept.append(pb.SessionResource(github_repository=repository))
    _check_apart(kept, "resources")
    accepted.resources = tuple(kept)
    return accepted


def restore(given: Iterable[pb.SessionResource], path: str) -> tuple[pb.SessionResource, ...]:
    """The resources of an export, of whichever git hosts.

    Files are named as they were, and memory stores, whether they are here or not: an export has
    none of their bytes. Raises INVALID_ARGUMENT.
    """
    restored: list[pb.SessionResource] = []
    for index, resource in enumerate(given):
        at = f"{path}.{index}"
        if resource.HasField("memory_store"):
            store = memory_stores.restored(resource.memory_store, at)
            restored.append(pb.SessionResource(memory_store=store))
            continue
        told = identified(resource)
        if told is None or not _ID.match(told.id):
            raise refuse(at, "is no resource as sessions have them")
        restored.append(_restored(told, at))
    ids = [one.id for one in map(identified, restored) if one is not None]
    if len(set(ids)) < len(ids):
        raise refuse(path, "two resources have the same id")
    _check_apart(restored, path)
    return tuple(restored)


def _restored(told: pb.FileResource | pb.GithubRepositoryResource, path: str) -> pb.SessionResource:
    if isinstance(told, pb.FileResource):
        if not _FILE_ID.match(told.file_id):
            raise refuse(f"{path}.file_id", "is no file's id")
        files.check_path(told.mount_path, f"{path}.mount_path")
        file = pb.FileResource(file_id=told.file_id, mount_path=told.mount_path)
        restored = pb.SessionResource(file=file)
    else:
        if told.HasField("authorization_token"):
            raise refuse(path, "is no repository as sessions have them")
        repository = repositories.checked(told, path, None)
        restored = pb.SessionResource(github_repository=repository)
    if (kept := identified(restored)) is not None:
        kept.id = told.id
        kept.created_at.CopyFrom(told.created_at)
        kept.updated_at.CopyFrom(told.updated_at)
    return restored


def _check_apart(resources: Sequence[pb.SessionResource], path: str) -> None:
    """Raises INVALID_ARGUMENT for too many, one that is there twice, or in another's place."""
    memory_stores.check_once(resources, path)
    if sum(one.HasField("file") for one in resources) > files.MAX_FILES:
        raise refuse(path, f"at most {files.MAX_FILES} files are given to a session")
    urls: dict[str, int] = {}
    for index, resource in enumerate(resources):
        if resource.HasField("github_repository"):
            first = urls.setdefault(resource.github_repository.url, index)
            if first != index:
                raise refuse(f"{path}.{index}.url", f"is that of {path}.{first}")
    places = Places()
    for index, resource in enumerate(resources):
        place = (identified(resource) or resource.memory_store).mount_path
        if place:  # a store that is not known yet has none
            places.take(place, f"{path}.{index}", f"{path}.{index}.mount_path")
