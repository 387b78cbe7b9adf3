"""Files as they are made: of an upload, by a session, and as a copy for one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.file.v1.file_pb2 import File, FileScope
from services.registry.domain.files.names import check_name, check_path, checked_kind

if TYPE_CHECKING:
    from drover.file.v1.file_service_pb2 import FileHeader
    from services.registry.domain.files.names import Kinds

KEPT_AFTER_EXPIRY: Final = timedelta(days=30)
"""How long what is known of a file outlives its bytes (ENDPOINTS, Files)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an installation allows: bytes of one file, and of all of a workspace together.

    With `downloadable_uploads` every file may be downloaded, not only those that sessions made.
    """

    file_bytes: int
    workspace_bytes: int
    downloadable_uploads: bool = False


@dataclass(slots=True)
class Upload:
    """What is said of a file before its bytes come. `session_id` is of the one that made it."""

    filename: str
    mime_type: str
    expires_after: timedelta | None = None
    session_id: str = ""

    def amend(self, header: FileHeader) -> None:
        """Takes in what is said behind the bytes: when it expires, and nothing else."""
        if header.HasField("expires_in_seconds"):
            self.expires_after = timedelta(seconds=header.expires_in_seconds)


def new_upload(header: FileHeader, kinds: Kinds) -> Upload:
    """What an upload's header says. Raises INVALID_ARGUMENT.

    One without a kind is of what its name says.
    """
    kind = checked_kind(header.mime_type) if header.mime_type else ""
    filename, session_id = header.filename, header.session_id
    if session_id:
        check_path(filename)
    else:
        check_name(filename)
    upload = Upload(filename, kind or kinds.of(filename), session_id=session_id)
    upload.amend(header)
    return upload


@dataclass(frozen=True, slots=True)
class Content:
    """What is known of bytes that have come."""

    size: int
    sha256: str


def new_file(upload: Upload, content: Content, file_id: str, now: datetime) -> File:
    """A file whose bytes are there. Its time of expiry counts from then."""
    file = File(
        id=file_id,
        filename=upload.filename,
        mime_type=upload.mime_type,
        size_bytes=content.size,
        sha256=content.sha256,
        scope=FileScope(id=upload.session_id) if upload.session_id else None,
    )
    file.created_at.FromDatetime(now)
    if upload.expires_after is not None:
        file.expires_at.FromDatetime(now + upload.expires_after)
    return file


def new_copy(file: File, copy_id: str, session_id: str, now: datetime) -> File:
    """A session's copy of a file: of the same bytes, and not bound to its time."""
    copy = File()
    copy.CopyFrom(file)
    copy.id, copy.copy_of = copy_id, file.id
    copy.ClearField("expires_at")
    copy.scope.id = session_id
    copy.created_at.FromDatetime(now)
    return copy


def is_same(one: File, other: File) -> bool:
    """Whether files are of the same bytes, and the same kind."""
    return (one.sha256, one.size_bytes, one.mime_type) == (
        other.sha256,
        other.size_bytes,
        other.mime_type,
    )


def no_file(file_id: str) -> DroverError:
    """NOT_FOUND for a file."""
    return DroverError(Reason.NOT_FOUND, f"no file {file_id!r}", file_id=file_id)


def expired(file_id: str) -> DroverError:
    """NOT_FOUND (`file_expired`) for the bytes of a file whose time is over."""
    return DroverError(
        Reason.NOT_FOUND,
        f"file {file_id!r} has expired",
        error_code="file_expired",
        file_id=file_id,
    )


def not_downloadable(file_id: str) -> DroverError:
    """INVALID_ARGUMENT (`file_not_downloadable`)."""
    return DroverError(
        Reason.INVALID_ARGUMENT,
        f"file {file_id!r} is not downloadable: only those that sessions made are",
        error_code="file_not_downloadable",
    )


def too_large(most: int) -> DroverError:
    """REQUEST_TOO_LARGE for more bytes than a file may have."""
    return DroverError(
        Reason.REQUEST_TOO_LARGE, f"a file may have at most {most} bytes, this one has more"
    )


def quota_exceeded(quota: int) -> DroverError:
    """INVALID_ARGUMENT (`storage_quota_exceeded`)."""
    return DroverError(
        Reason.INVALID_ARGUMENT,
        f"the workspace's files may have {quota} bytes together, with this one they have more: "
        "delete some",
        error_code="storage_quota_exceeded",
    )


def session_ended(session_id: str) -> DroverError:
    """NOT_FOUND for what comes for a session whose files were deleted with it."""
    return DroverError(Reason.NOT_FOUND, f"session {session_id!r} was deleted")
