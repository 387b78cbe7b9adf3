"""What files need of a store. Every call is scoped to one workspace.

A call with a `once` has its effect once, as in `services.registry.domain.ports`. One contract suite
(tests/contract/registry) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from catalogue.resources.once import Once
from drover.file.v1.file_pb2 import File
from services.registry.domain.files.file import Upload
from services.registry.domain.ports import Listing


class Opened(NamedTuple):
    """A file whose bytes are there, and what they are called in the store."""

    file: File
    object: str


class Copy(NamedTuple):
    """A copy that a session is given, under an id that was made for it."""

    file_id: str
    copy_id: str


class FileStore(Protocol):
    """Files with their bytes. No file is without them before it has expired.

    A file is answered as it is shown, with `downloadable` as the installation has it.
    """

    async def add(
        self,
        workspace_id: str,
        upload: Upload,
        pieces: AsyncIterator[bytes],
        once: Once[File] | None = None,
    ) -> File:
        """Keeps a new file, and answers it; durable on return.

        One that a session made takes the place of its earlier one of the same name, and of the
        same bytes, changes nothing. Raises what `pieces` does, REQUEST_TOO_LARGE, INVALID_ARGUMENT
        (`storage_quota_exceeded`), NOT_FOUND for a session that was deleted, and UNAVAILABLE; then
        nothing is kept.
        """
        ...

    async def get(self, workspace_id: str, file_id: str) -> File:
        """A file, expired or not. Raises NOT_FOUND."""
        ...

    async def open(self, workspace_id: str, file_id: str) -> Opened:
        """A file whose bytes are there. Raises NOT_FOUND, with `file_expired` after its time."""
        ...

    def read(self, workspace_id: str, opened: Opened) -> AsyncGenerator[bytes, None]:
        """The bytes of an opened file, in pieces of at most 256 KiB.

        Raises as `open` when they have gone since, UNAVAILABLE, and INTERNAL when they are not
        those that were stored.
        """
        ...

    async def delete(self, workspace_id: str, file_id: str, once: Once[str] | None = None) -> None:
        """Deletes a file; copies stay. A `once` is given its id. Raises NOT_FOUND."""
        ...

    async def page(
        self, workspace_id: str, listing: Listing, session_id: str | None = None
    ) -> Sequence[File]:
        """Files, newest first; with a `session_id` only those of that session."""
        ...

    async def some(
        self, workspace_id: str, ids: Sequence[str], session_id: str | None = None
    ) -> Sequence[File]:
        """Those of these files that there are, newest first."""
        ...

    async def copy(
        self, workspace_id: str, session_id: str, copies: Sequence[Copy], now: datetime
    ) -> Sequence[File]:
        """Gives a session copies, all or none, and answers them; those that are there stay.

        Raises NOT_FOUND for the first that is not there, with `file_expired` after its time, and
        for a session that was deleted; CONFLICT for an id that is another file's.
        """
        ...

    async def end_session(self, workspace_id: str, session_id: str, now: datetime) -> None:
        """Deletes all files of a session, and keeps from it what comes later."""
        ...

    async def reopen_session(self, workspace_id: str, session_id: str) -> None:
        """Keeps nothing from a session any longer that is there again."""
        ...
