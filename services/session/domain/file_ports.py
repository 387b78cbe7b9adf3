"""What a store keeps of files that are deleted elsewhere: those of sessions that are no more.

A session's copies of files are made before it is stored, or before it has the resource that they
are for. So that none is left behind if that never comes to be, their deletion is noted first, for
later, and withdrawn by the very transaction that gives them to the session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Collection

    from services.session.domain.session import SessionRef

FORESEEN_MICROS: Final = 3_600_000_000
"""What was foreseen, and is not withdrawn by then, never came to be."""


@dataclass(frozen=True, slots=True)
class FileRelease:
    """A file of a session to be deleted, or without a `file_id` all of them."""

    id: int
    ref: SessionRef
    file_id: str = ""
    attempts: int = 0


class WithdrawFiles(Protocol):
    """What gives files to a session withdraws that they are to be deleted."""

    def keep_files(self, ref: SessionRef, file_id: str = "") -> None:
        """Withdraws a deletion that was foreseen. Raises UNAVAILABLE when its time has come."""
        ...


class FileTransaction(WithdrawFiles, Protocol):
    """The part of a transaction that is about files."""

    def foresee_files(self, ref: SessionRef, file_id: str = "") -> None:
        """Notes that a file is deleted in `FORESEEN_MICROS`, unless that is withdrawn."""
        ...

    def hasten_files(self, ref: SessionRef, file_id: str = "") -> bool:
        """Has a deletion that was foreseen come due now; whether it was not withdrawn."""
        ...

    def release_files(self, ref: SessionRef, file_id: str = "") -> None:
        """Notes that a file must be deleted."""
        ...

    def lease_file_releases(self, limit: int, lease_micros: int) -> list[FileRelease]:
        """Deletions whose time has come; they are nobody else's for `lease_micros`.

        None of them can be withdrawn any more.
        """
        ...

    def finish_file_releases(self, release_ids: Collection[int]) -> None:
        """Strikes deletions off the list."""
        ...

    def postpone_file_release(self, release_id: int, delay_micros: int) -> None:
        """Has one that failed tried again later."""
        ...


def too_late(ref: SessionRef) -> DroverError:
    """The refusal of what took so long that the files that it needs have been given up."""
    return DroverError(
        Reason.UNAVAILABLE, f"session {ref.session_id} waited for its files for too long: try again"
    )
