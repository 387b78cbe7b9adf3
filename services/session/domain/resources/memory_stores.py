"""Memory stores: attached for the session's life, with what they were called then."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.session.v1 import session_pb2 as pb
from services.session.domain.admission import refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from drover.memory.v1 import memory_pb2

MAX_STORES: Final = 8

_MOUNTS: Final = "/mnt/memory/"
_DEFAULT: Final = "memory"
_OTHERS: Final = re.compile(r"[^a-z0-9]+")
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,254}\Z")
_MAX_SLUG: Final = 200
"""A directory's name has 255 bytes, some of them for a number."""
_ACCESS: Final = ("read_write", "read_only")
_MAX_ID: Final = 128
_MAX_NAME: Final = 255
_MAX_DESCRIPTION: Final = 1024
_MAX_INSTRUCTIONS: Final = 4096


def accept(asked: pb.MemoryStoreResource, path: str) -> pb.MemoryStoreResource:
    """A store as it was asked for; the rest is filled in once it is known. Raises NOT_FOUND."""
    if not asked.memory_store_id.isprintable() or len(asked.memory_store_id) > _MAX_ID:
        raise not_found(asked.memory_store_id, path)
    kept = pb.MemoryStoreResource(
        memory_store_id=asked.memory_store_id,
        access=asked.access if asked.HasField("access") else _ACCESS[0],
    )
    if asked.HasField("instructions"):
        kept.instructions = asked.instructions
    return kept


def check_once(resources: Sequence[pb.SessionResource], path: str) -> None:
    """Raises INVALID_ARGUMENT for too many stores, or one that is there twice."""
    seen: dict[str, int] = {}
    for index, resource in enumerate(resources):
        if not resource.HasField("memory_store"):
            continue
        first = seen.setdefault(resource.memory_store.memory_store_id, index)
        if first != index:
            raise refuse(f"{path}.{index}.memory_store_id", f"is that of {path}.{first}")
    if len(seen) > MAX_STORES:
        raise refuse(path, f"at most {MAX_STORES} memory stores are given to a session")


def fill(
    resources: Sequence[pb.SessionResource], stores: Mapping[str, memory_pb2.MemoryStore]
) -> None:
    """Notes what the stores are called, and where each is mounted.

    Raises NOT_FOUND for one that is not among `stores`, and ARCHIVED.
    """
    taken: set[str] = set()
    for index, resource in enumerate(resources):
        if not resource.HasField("memory_store"):
            continue
        kept, path = resource.memory_store, f"resources.{index}"
        store = stores.get(kept.memory_store_id)
        if store is None:
            raise not_found(kept.memory_store_id, path)
        if store.HasField("archived_at"):
            raise DroverError(
                Reason.ARCHIVED, f"{path}.memory_store_id: {kept.memory_store_id} is archived"
            )
        slug = _free(_slug(store.name), taken)
        taken.add(slug)
        kept.name, kept.description = store.name, store.description
        kept.mount_path = f"{_MOUNTS}{slug}"


def restored(told: pb.MemoryStoreResource, path: str) -> pb.MemoryStoreResource:
    """A store of an export, be it here or not. Raises INVALID_ARGUMENT."""
    named = told.memory_store_id
    if not named or not named.isprintable() or len(named) > _MAX_ID or told.access not in _ACCESS:
        raise refuse(path, "is no memory store as sessions have them")
    limits = (
        ("name", _MAX_NAME),
        ("description", _MAX_DESCRIPTION),
        ("instructions", _MAX_INSTRUCTIONS),
    )
    for field, limit in limits:
        if len(getattr(told, field)) > limit:
            raise refuse(f"{path}.{field}", f"has more than {limit} characters")
    if not told.mount_path.startswith(_MOUNTS) or not _SLUG.match(
        told.mount_path.removeprefix(_MOUNTS)
    ):
        raise refuse(f"{path}.mount_path", f"must be a directory of {_MOUNTS[:-1]}")
    kept = pb.MemoryStoreResource()
    kept.CopyFrom(told)
    return kept


def not_found(store_id: str, path: str) -> DroverError:
    """The refusal of a store that the workspace does not have."""
    return DroverError(
        Reason.NOT_FOUND, f"{path}.memory_store_id: memory store {store_id} not found"
    )


def _slug(name: str) -> str:
    return _OTHERS.sub("-", name.lower()).strip("-")[:_MAX_SLUG].rstrip("-") or _DEFAULT


def _free(slug: str, taken: Collection[str]) -> str:
    """The name itself, or with the first number from 2 on that makes it another."""
    number, free = 1, slug
    while free in taken:
        number += 1
        free = f"{slug}-{number}"
    return free
