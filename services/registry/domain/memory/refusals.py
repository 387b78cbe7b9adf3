"""What is refused about memory, and how it is told.

What is not there, and what is not in the caller's workspace, is answered alike.
"""

from __future__ import annotations

from typing import Final

from chassis.errors import DroverError, Reason

MAX_MEMORIES: Final = 2000
"""That a store may hold (SEMANTICS §13)."""

PATH_CONFLICT: Final = "memory_path_conflict_error"
PRECONDITION_FAILED: Final = "memory_precondition_failed_error"


def no_memory_store(store_id: str) -> DroverError:
    """NOT_FOUND for a store."""
    return DroverError(Reason.NOT_FOUND, f"no memory store {store_id!r}")


def no_memory(memory_id: str) -> DroverError:
    """NOT_FOUND for a memory of a store."""
    return DroverError(Reason.NOT_FOUND, f"no memory {memory_id!r}")


def no_memory_version(version_id: str) -> DroverError:
    """NOT_FOUND for a version of a memory."""
    return DroverError(Reason.NOT_FOUND, f"no memory version {version_id!r}")


def store_archived(store_id: str) -> DroverError:
    """ARCHIVED for a store that is to be written to."""
    return DroverError(Reason.ARCHIVED, f"memory store {store_id} is archived: it is read only")


def store_full(store_id: str) -> DroverError:
    """INVALID_ARGUMENT for one memory more than a store may hold: nothing but a deletion helps."""
    return DroverError(
        Reason.INVALID_ARGUMENT,
        f"memory store {store_id} holds {MAX_MEMORIES:,} memories already, which is the most: "
        "delete some first",
    )


def path_conflict(path: str, other_id: str, other_path: str) -> DroverError:
    """CONFLICT for a path where a memory is, or that could not be a file beside it."""
    what = "is taken" if path == other_path else f"cannot be beside {other_path!r}"
    return DroverError(
        Reason.CONFLICT,
        f"path: {path!r} {what} (memory {other_id})",
        error_code=PATH_CONFLICT,
        conflicting_memory_id=other_id,
        conflicting_path=other_path,
    )


def precondition_failed(memory_id: str, expected: str, found: str) -> DroverError:
    """CONFLICT for a memory whose content is another one than was expected."""
    return DroverError(
        Reason.CONFLICT,
        f"memory {memory_id} has changed: the SHA-256 of its content is {found}, not {expected}",
        error_code=PRECONDITION_FAILED,
    )


def live_version(version_id: str) -> DroverError:
    """INVALID_ARGUMENT for the redaction of what a memory holds at present."""
    return DroverError(
        Reason.INVALID_ARGUMENT,
        f"memory version {version_id} holds the present content of its memory: "
        "update or delete the memory first",
    )
