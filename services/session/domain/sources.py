"""Files that a message or a result shows to the model: there, and of a kind that it can be shown.

They are checked when they are sent, so that who sends them learns of a mistake. The bytes are read
when the model is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from services.session.domain.admission import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from drover.event.v1 import content_pb2, event_pb2
    from drover.file.v1 import file_pb2

MAX_DOCUMENTS: Final = 100
"""Blocks of one request that are documents by a file's id."""

_PDF: Final = "application/pdf"


@dataclass(frozen=True, slots=True)
class FileUse:
    """A file that a block names: as an image or a document, and where in the request."""

    file_id: str
    kind: str
    path: str


def uses(events: Iterable[event_pb2.Event], path: str) -> list[FileUse]:
    """The files that events of a request name. Raises INVALID_ARGUMENT for too many."""
    found: list[FileUse] = []
    for index, event in enumerate(events):
        for place, block in enumerate(_content(event)):
            kind = block.WhichOneof("block")
            if kind == "image" or kind == "document":  # noqa: PLR1714  # each has a type of its own
                source = block.image.source if kind == "image" else block.document.source
                if source.WhichOneof("source") == "file":
                    at = f"{path}.{index}.content.{place}.source.file_id"
                    found.append(FileUse(source.file.file_id, kind, at))
    if sum(one.kind == "document" for one in found) > MAX_DOCUMENTS:
        raise refuse(path, f"at most {MAX_DOCUMENTS} documents are named by their files")
    return found


def check(used: Iterable[FileUse], files: Mapping[str, file_pb2.File], now: datetime) -> None:
    """Raises NOT_FOUND for a file that is not there, or no more, and INVALID_ARGUMENT for one that
    is of no kind that the model is shown, naming the path.
    """
    for use in used:
        _check_kind(use, _there(use, files, now).mime_type)


def check_there(used: Iterable[FileUse], files: Mapping[str, file_pb2.File], now: datetime) -> None:
    """As `check`, for files of any kind."""
    for use in used:
        _there(use, files, now)


def has_expired(file: file_pb2.File, now: datetime) -> bool:
    """Whether nothing but its name is there any more."""
    return file.HasField("expires_at") and file.expires_at.ToDatetime(now.tzinfo) <= now


def _there(use: FileUse, files: Mapping[str, file_pb2.File], now: datetime) -> file_pb2.File:
    file = files.get(use.file_id)
    if file is None:
        raise DroverError(Reason.NOT_FOUND, f"{use.path}: file {use.file_id} not found")
    if has_expired(file, now):
        raise DroverError(
            Reason.NOT_FOUND,
            f"{use.path}: file {use.file_id} has expired",
            error_code="file_expired",
        )
    return file


def _check_kind(use: FileUse, mime_type: str) -> None:
    given = mime_type.partition(";")[0].strip().lower()
    if use.kind == "image":
        if not given.startswith("image/"):
            raise refuse(use.path, f"is {given}: an image is an image/… file")
    elif given != _PDF and not given.startswith("text/"):
        raise refuse(use.path, f"is {given}: a document is an {_PDF} or a text/… file")


def _content(event: event_pb2.Event) -> Sequence[content_pb2.ContentBlock]:
    """The content of an event in which a client may show files."""
    kind = event.WhichOneof("payload")
    if kind == "user_message":
        return event.user_message.content
    if kind == "user_custom_tool_result":
        return event.user_custom_tool_result.content
    return event.user_tool_result.content if kind == "user_tool_result" else ()
