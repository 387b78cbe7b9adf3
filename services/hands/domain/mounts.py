"""What of a session is brought into its sandboxes: files, skills and memory stores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.hands.v1 import mounts_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

UPLOADS: Final = "/mnt/session/uploads"
SKILLS: Final = "/mnt/skills"
MEMORY: Final = "/mnt/memory"

_MAX_SEGMENT: Final = 255
"""Bytes of one name that every file system takes."""
_REMEMBERED: Final = 256
_FIRST_PRINTABLE: Final = " "
_DELETE: Final = "\x7f"


@dataclass(frozen=True, slots=True)
class MountedFile:
    """A file of the session; `path` is where it lies below the uploads, without a first slash."""

    file_id: str
    path: str


@dataclass(frozen=True, slots=True)
class MountedSkill:
    """A version of a skill, and its directory below the skills."""

    skill_id: str
    version: str
    directory: str


@dataclass(frozen=True, slots=True)
class MountedStore:
    """A memory store, and its directory below the memory."""

    memory_store_id: str
    directory: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Mounts:
    """All of it. Everything is looked up in the workspace."""

    workspace_id: str = ""
    files: tuple[MountedFile, ...] = ()
    skills: tuple[MountedSkill, ...] = ()
    stores: tuple[MountedStore, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.skills or self.stores)

    @property
    def writable(self) -> tuple[str, ...]:
        """The directories of the memory stores that a sandbox may write to."""
        return tuple(store.directory for store in self.stores if not store.read_only)


NONE: Final = Mounts()


def check(asked: pb.Mounts, workspace_id: str) -> Mounts:
    """What a request asks for. Refuses what cannot be with INVALID_ARGUMENT naming the path."""
    if not (asked.files or asked.skills or asked.memory_stores):
        return NONE
    return _checked(asked.SerializeToString(deterministic=True), workspace_id)


# Every call of a session brings the same ones.
@lru_cache(maxsize=_REMEMBERED)
def _checked(text: bytes, workspace_id: str) -> Mounts:
    asked = pb.Mounts.FromString(text)
    files = tuple(
        MountedFile(file.file_id, _below_uploads(file.mount_path, f"mounts.files.{index}"))
        for index, file in enumerate(asked.files)
    )
    skills = tuple(MountedSkill(one.skill_id, one.version, one.directory) for one in asked.skills)
    stores = tuple(
        MountedStore(one.memory_store_id, one.mount_path.removeprefix(f"{MEMORY}/"), one.read_only)
        for one in asked.memory_stores
    )
    _check_apart((file.path for file in files), "files")
    _check_apart((skill.directory for skill in skills), "skills")
    _check_apart((store.directory for store in stores), "memory_stores")
    return Mounts(workspace_id, files, skills, stores)


def _below_uploads(path: str, where: str) -> str:
    if not path.startswith(f"{UPLOADS}/"):
        raise _refused(f"{where}.mount_path: is not below {UPLOADS}")
    below = path.removeprefix(f"{UPLOADS}/")
    for segment in below.split("/"):
        if segment in {"", ".", ".."} or len(segment.encode()) > _MAX_SEGMENT:
            raise _refused(f"{where}.mount_path: has a part that is no name")
        if any(one < _FIRST_PRINTABLE or one == _DELETE for one in segment):
            raise _refused(f"{where}.mount_path: has a control character")
    return below


def _check_apart(paths: Iterable[str], where: str) -> None:
    """Refuses two at one place, and one below another."""
    taken: set[str] = set()
    for path in sorted(paths, key=lambda path: path.split("/")):
        segments = path.split("/")
        above = ("/".join(segments[:count]) for count in range(1, len(segments) + 1))
        if any(one in taken for one in above):
            raise _refused(f"mounts.{where}: {path} is in the place of another")
        taken.add(path)


def _refused(text: str) -> DroverError:
    return DroverError(Reason.INVALID_ARGUMENT, text)
