"""Where the bytes of files and skills lie, and how much there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field

from chassis.errors import CannotStartError
from chassis.settings import Settings
from services.registry.domain.files.file import Limits
from storage.objects import open_objects

if TYPE_CHECKING:
    from storage.objects import Objects

SETTING = "DROVER_FILES_URL"

_PIECE: Final = 1024 * 1024
"""Of a file, a few are in memory for each that comes or goes."""


class FileOptions(Settings):
    """Settings of files."""

    files_url: str = Field(
        default="",
        description="Where the bytes of files and skills lie: file:///directory or "
        "s3://bucket/prefix. Default: DATA_DIR/files.",
    )
    max_file_bytes: int = Field(
        default=500 * 1024 * 1024, ge=1, description="The most bytes that one file may have."
    )
    files_quota_bytes: int = Field(
        default=10**12,
        ge=0,
        description="The most bytes that the files of a workspace may have together, those that "
        "sessions made included.",
    )
    downloadable_uploads: bool = Field(
        default=False,
        description="Let uploads be downloaded, too, and not only what sessions made.",
    )

    max_uploads: int = Field(
        default=64, ge=1, description="Files that may be on their way in at once."
    )
    max_downloads: int = Field(
        default=64, ge=1, description="Files that may be on their way out at once."
    )

    def store(self) -> Objects:
        """Where the bytes lie. Raises `CannotStartError`, which names the setting."""
        url = self.files_url or (self.data_dir.resolve() / "files").as_uri()
        try:
            return open_objects(url, piece=_PIECE)
        except CannotStartError as error:
            raise CannotStartError(f"{SETTING}: {error}") from error

    def limits(self) -> Limits:
        """How much there may be, and who may have it."""
        return Limits(self.max_file_bytes, self.files_quota_bytes, self.downloadable_uploads)
