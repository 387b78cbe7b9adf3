"""A memory's life: made, changed, and what every change of it leaves."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from drover.memory.v1.memory_pb2 import MEMORY_VIEW_FULL, MEMORY_VIEW_UNSPECIFIED, Memory
from services.registry.domain.memory.paths import refuse_bad_path
from services.registry.domain.memory.refusals import precondition_failed

if TYPE_CHECKING:
    from datetime import datetime

    from drover.memory.v1.memory_pb2 import Actor, MemoryVersion, MemoryView
    from drover.memory.v1.memory_service_pb2 import (
        CreateMemoryRequest,
        DeleteMemoryRequest,
        UpdateMemoryRequest,
    )
    from drover.memory.v1.memory_version_service_pb2 import RedactMemoryVersionRequest

KEPT_VERSIONS: Final = 100
"""So many versions of a memory are kept however old they are, the newest ones."""

KEPT_MICROS: Final = 30 * 24 * 3600 * 1_000_000
"""For so long every version is kept, and all of a memory's when it was deleted."""


class Origin(NamedTuple):
    """By whom, if that is known, and when."""

    by: Actor | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """What a change of a memory is to do; `None` keeps. `expected` is the present content's digest.

    `version_id` is the id that a version which comes of it will have.
    """

    version_id: str
    origin: Origin
    content: str | None = None
    path: str | None = None
    expected: str | None = None


def origin(
    request: CreateMemoryRequest
    | UpdateMemoryRequest
    | DeleteMemoryRequest
    | RedactMemoryVersionRequest,
    now: datetime,
) -> Origin:
    """Who asks, and when."""
    return Origin(request.actor if request.HasField("actor") else None, now)


def digest(content: str) -> str:
    """SHA-256 of a content's bytes, as the contract has it."""
    return hashlib.sha256(content.encode()).hexdigest()


def new_memory(request: CreateMemoryRequest, memory_id: str, version_id: str) -> Memory:
    """The memory that `request` describes. Raises INVALID_ARGUMENT for a bad path."""
    refuse_bad_path(request.path)
    memory = Memory(
        id=memory_id,
        memory_store_id=request.memory_store_id,
        memory_version_id=version_id,
        path=request.path,
    )
    _hold(memory, request.content)
    return memory


def wanted_change(request: UpdateMemoryRequest, version_id: str, now: datetime) -> Change:
    """What an update asks for. Raises INVALID_ARGUMENT for a bad path."""
    if request.HasField("path"):
        refuse_bad_path(request.path)
    expected = None
    if request.precondition.HasField("content_sha256"):
        expected = request.precondition.content_sha256.content_sha256
    return Change(
        version_id,
        origin(request, now),
        request.content if request.HasField("content") else None,
        request.path if request.HasField("path") else None,
        expected,
    )


def wanted_deletion(request: DeleteMemoryRequest, version_id: str, now: datetime) -> Change:
    """What a deletion asks for."""
    return Change(
        version_id,
        origin(request, now),
        expected=(
            request.expected_content_sha256 if request.HasField("expected_content_sha256") else None
        ),
    )


def changed_memory(stored: Memory, change: Change) -> Memory:
    """`stored` with its content at its new version, or itself where nothing would change.

    Raises CONFLICT where the content is not the expected one, even then.
    """
    refuse_unexpected(stored, change)
    memory = Memory()
    memory.CopyFrom(stored)
    if change.path is not None:
        memory.path = change.path
    if change.content is not None:
        _hold(memory, change.content)
    if (memory.path, memory.content_sha256) == (stored.path, stored.content_sha256):
        return stored
    memory.memory_version_id = change.version_id
    return memory


def refuse_unexpected(stored: Memory, change: Change) -> None:
    """Raises CONFLICT where the content is not the expected one."""
    if change.expected is not None and change.expected != stored.content_sha256:
        raise precondition_failed(stored.id, change.expected, stored.content_sha256)


def _hold(memory: Memory, content: str) -> None:
    memory.content = content
    memory.content_sha256 = digest(content)
    memory.content_size_bytes = len(content.encode())


def shows_content(view: MemoryView.ValueType, default: MemoryView.ValueType) -> bool:
    """Whether content is answered in a view."""
    return (default if view == MEMORY_VIEW_UNSPECIFIED else view) == MEMORY_VIEW_FULL


def without_text(memory: Memory) -> Memory:
    """A memory without what it says and where: what may be kept of it beside its versions."""
    lean = Memory()
    lean.CopyFrom(memory)
    lean.ClearField("content")
    lean.ClearField("path")
    return lean


def recalled(lean: Memory, version: MemoryVersion) -> Memory:
    """A memory as one of its versions has it."""
    memory = Memory()
    memory.CopyFrom(lean)
    memory.path, memory.content = version.path, version.content
    return memory
