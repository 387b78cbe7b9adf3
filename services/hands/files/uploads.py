"""Brings a session's files to where its sandboxes may read them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, Protocol

from chassis.errors import DroverError
from services.hands.bringing import beneath
from services.hands.bringing.bringer import NotBrought
from services.hands.domain.mounts import UPLOADS
from services.hands.files.source import not_had

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from drover.file.v1.file_pb2 import File
    from services.hands.bringing.bringer import Errand
    from services.hands.domain.mounts import MountedFile, Mounts
    from services.hands.files.source import Source

_MODE: Final = 0o444


class Files(Protocol):
    """Where files come from."""

    def file(
        self, workspace_id: str, file_id: str
    ) -> AbstractAsyncContextManager[tuple[File, AsyncIterator[bytes]]]:
        """What is known of a file, and its bytes. Raises `DroverError`."""
        ...


class Uploads:
    """The `Kind` of files."""

    part = "uploads"

    def __init__(self, files: Files, source: Source) -> None:
        self._files = files
        self._source = source

    def items(self, mounts: Mounts) -> tuple[MountedFile, ...]:
        """The session's files."""
        return mounts.files

    def path(self, item: MountedFile) -> str:
        """Its path below the uploads."""
        return item.path

    def key(self, item: MountedFile) -> str:
        """Its id, for its bytes never change."""
        return item.file_id

    def about(self, item: MountedFile) -> str:
        """Its id, and where it is to be."""
        return f"the file {item.file_id} at {UPLOADS}/{item.path}"

    async def bring(self, item: MountedFile, errand: Errand) -> None:
        """Reads it from the registry. Raises `NotBrought`."""
        place = errand.root, errand.unfinished
        try:
            async with self._files.file(errand.workspace_id, item.file_id) as (about, pieces):
                if about.scope.id != errand.session_id:
                    raise NotBrought("it is not a file of this session", away=False)
                size = about.size_bytes
                await self._source.save(pieces, size, about.sha256, place, size=size)
        except DroverError as error:
            raise not_had(error) from error
        await asyncio.to_thread(_open_to_all, errand)


def _open_to_all(errand: Errand) -> None:
    with beneath.opened(errand.root) as volume:
        os.chmod(errand.unfinished, _MODE, dir_fd=volume)
