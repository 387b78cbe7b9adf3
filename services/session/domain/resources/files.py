"""Files: copies that a session is given, when it is created or later, and that it may give back."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.session.v1 import session_pb2 as pb
from services.session.domain.admission import refuse
from services.session.domain.resources.kinds import PREFIX, files, find
from services.session.domain.resources.places import Places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.ids import IdSource

MAX_FILES: Final = 500
UPLOADS: Final = "/mnt/session/uploads"

_FILE_PREFIX: Final = "file"
_FILE_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,128}\Z")
_MAX_PATH: Final = 1024
_MAX_SEGMENT: Final = 255
# Controls, halves of surrogate pairs, and separators of lines and paragraphs.
_NO_NAME: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a file to be made: under which id, of which file, which `path` of a request names.

    `resource` is what the session has of it.
    """

    path: str
    file_id: str
    copy_id: str
    resource: pb.FileResource

    def not_found(self) -> DroverError:
        """The refusal of a file that the workspace does not have, or has no more."""
        return DroverError(Reason.NOT_FOUND, f"{self.path}: file {self.file_id} not found")


def accept(asked: pb.FileResource, path: str, ids: IdSource) -> Copy:
    """A file as it is stored, which is a copy of the one that was named.

    Raises INVALID_ARGUMENT, and NOT_FOUND for what is no file's id.
    """
    place = f"{path}.mount_path" if path else "mount_path"
    named = f"{path}.file_id" if path else "file_id"
    kept = pb.FileResource(id=ids(PREFIX), file_id=ids(_FILE_PREFIX))
    copy = Copy(named, asked.file_id, kept.file_id, kept)
    if not _FILE_ID.match(asked.file_id):
        raise copy.not_found()
    wanted = asked.mount_path if asked.HasField("mount_path") else asked.file_id
    kept.mount_path = _placed(wanted, place)
    return copy


def copied(
    resources: Sequence[pb.SessionResource], ids: IdSource
) -> tuple[tuple[pb.SessionResource, ...], tuple[Copy, ...]]:
    """A session's resources as another session has them, with copies of its own of the files."""
    ours, copies = [], []
    for index, resource in enumerate(resources):
        if resource.HasField("file"):
            kept = pb.FileResource()
            kept.CopyFrom(resource.file)
            kept.file_id = ids(_FILE_PREFIX)
            path = f"resources.{index}.file_id"
            copies.append(Copy(path, resource.file.file_id, kept.file_id, kept))
            ours.append(pb.SessionResource(file=kept))
        else:
            ours.append(resource)
    return tuple(ours), tuple(copies)


def check_path(text: str, path: str) -> None:
    """Raises INVALID_ARGUMENT for a place where no file can be."""
    if _placed(text, path) != text:
        raise refuse(path, f"must be a path below {UPLOADS}")


def check_room(resources: Sequence[pb.SessionResource], added: pb.FileResource) -> None:
    """Raises INVALID_ARGUMENT where a session has too many files, or one in its place."""
    there = files(resources)
    if len(there) >= MAX_FILES:
        raise refuse("file_id", f"the session has {MAX_FILES} files, which are all it may have")
    places = Places()
    for one in there:
        places.take(one.mount_path, f"resource {one.id}", "mount_path")
    places.take(added.mount_path, "it", "mount_path")


def without(
    resources: Sequence[pb.SessionResource], resource_id: str
) -> tuple[tuple[pb.SessionResource, ...], str]:
    """What is left when a file is taken away, and the file's id.

    Raises NOT_FOUND, and INVALID_ARGUMENT for a repository.
    """
    gone = find(resources, resource_id)
    if not gone.HasField("file"):
        raise refuse("resource_id", "a github_repository stays for the session's life")
    return tuple(one for one in resources if one is not gone), gone.file.file_id


def refuse_other(kind: str) -> DroverError:
    """Why nothing but files is added to a session that exists."""
    return refuse("type", f"a {kind} is given when the session is created, and for its life")


def _placed(wanted: str, path: str) -> str:
    """Where a file is to be: below the uploads, wherever it was wanted."""
    below = wanted.removeprefix(f"{UPLOADS}/")
    if below == wanted:
        below = wanted.removeprefix("/")
    placed = f"{UPLOADS}/{below}"
    if wanted == UPLOADS or len(placed.encode()) > _MAX_PATH:
        raise refuse(path, f"must be the path of a file, of at most {_MAX_PATH} bytes")
    for segment in below.split("/"):
        if segment in {"", ".", ".."}:
            raise refuse(path, "must have neither empty parts nor dots for parts")
        if len(segment.encode()) > _MAX_SEGMENT:
            raise refuse(path, f"no part of it may have more than {_MAX_SEGMENT} bytes")
        if not segment.isprintable() and any(map(_is_no_name, segment)):
            raise refuse(path, "must not have control characters")
    return placed


def _is_no_name(character: str) -> bool:
    return unicodedata.category(character) in _NO_NAME
