"""The part of a transaction that is about files: see `file_ports.FileTransaction`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.session.domain.file_ports import FORESEEN_MICROS, too_late
from services.session.store import files
from services.session.store.part import Part

if TYPE_CHECKING:
    from collections.abc import Collection

    from services.session.domain.file_ports import FileRelease
    from services.session.domain.session import SessionRef


class FilesPart(Part):
    """Deletions of files. Those that are new wait in memory, all others are told at once."""

    __slots__ = ()

    def foresee_files(self, ref: SessionRef, file_id: str = "") -> None:
        """Notes that a file is deleted unless that is withdrawn."""
        self._writes.file_releases.append((ref, file_id, True, self.now() + FORESEEN_MICROS))

    def keep_files(self, ref: SessionRef, file_id: str = "") -> None:
        """Withdraws a deletion."""
        if not files.withdraw(self._settled(), ref, file_id):
            raise too_late(ref)

    def hasten_files(self, ref: SessionRef, file_id: str = "") -> bool:
        """Has a deletion that was foreseen come due."""
        return files.hasten(self._settled(), ref, file_id, self.now())

    def release_files(self, ref: SessionRef, file_id: str = "") -> None:
        """Notes that a file must be deleted."""
        self._writes.file_releases.append((ref, file_id, False, self.now()))

    def lease_file_releases(self, limit: int, lease_micros: int) -> list[FileRelease]:
        """Deletions whose time has come, for this caller alone."""
        now = self.now()
        return files.lease(self._settled(), now, limit, now + lease_micros)

    def finish_file_releases(self, release_ids: Collection[int]) -> None:
        """Strikes deletions off the list."""
        if release_ids:
            files.finish(self._settled(), release_ids)

    def postpone_file_release(self, release_id: int, delay_micros: int) -> None:
        """Has one that failed tried again later."""
        files.postpone(self._settled(), release_id, self.now() + delay_micros)
