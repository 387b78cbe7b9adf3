"""What of a session is brought into its sandboxes: by the session alone, always alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from drover.hands.v1.mounts_pb2 import MountedFile, MountedMemoryStore, MountedSkill, Mounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drover.agent.v1.agent_pb2 import SessionAgent, SkillReference
    from drover.session.v1.session_pb2 import MemoryStoreResource, Session

UPLOADS: Final = "/mnt/session/uploads"
SKILLS: Final = "/mnt/skills"
READ_ONLY: Final = "read_only"

_DIRECTORY: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,70}\Z")
_NO_DIRECTORY: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 71


def of(session: Session) -> Mounts | None:
    """All of it; `None` where there is nothing, or a worker of the session's sees to it itself."""
    if session.environment.HasField("self_hosted"):
        return None
    mounts = Mounts(
        files=[MountedFile(file_id=file_id, mount_path=path) for file_id, path in _files(session)],
        skills=[
            MountedSkill(skill_id=skill.skill_id, version=skill.version, directory=directory)
            for directory, skill in skills(session.agent).items()
        ],
        memory_stores=[
            MountedMemoryStore(
                memory_store_id=store.memory_store_id,
                mount_path=store.mount_path,
                read_only=store.access == READ_ONLY,
            )
            for store in stores(session)
        ],
    )
    return mounts if mounts.ByteSize() else None


def skills(agent: SessionAgent) -> dict[str, SkillReference]:
    """The agent's skills by their directories: their names, told apart in the agent's order."""
    found: dict[str, SkillReference] = {}
    for skill in _skills(agent):
        name = directory = _directory(skill)
        number = 1
        while directory in found:
            number += 1
            directory = f"{name}-{number}"
        found[directory] = skill
    return found


def skills_of_worker(agent: SessionAgent) -> dict[str, SkillReference]:
    """The same where a worker unpacks them: of those with one name it keeps the last."""
    return {_directory(skill): skill for skill in _skills(agent)}


def stores(session: Session) -> list[MemoryStoreResource]:
    """The session's memory stores, in the order in which they were given."""
    return [it.memory_store for it in session.resources if it.HasField("memory_store")]


def files(session: Session) -> list[str]:
    """Where the session's files are, in order."""
    return sorted(path for _, path in _files(session))


def _files(session: Session) -> Iterator[tuple[str, str]]:
    for resource in session.resources:
        if resource.HasField("file"):
            file = resource.file
            yield file.file_id, file.mount_path or f"{UPLOADS}/{file.file_id}"


def _skills(agent: SessionAgent) -> Iterator[SkillReference]:
    for skill in agent.skills:
        yield skill.custom if skill.HasField("custom") else skill.anthropic


def _directory(skill: SkillReference) -> str:
    if _DIRECTORY.match(skill.name):
        return skill.name
    # A name is made of nothing else; whatever it is, it must not lead anywhere.
    return _NO_DIRECTORY.sub("-", skill.skill_id.lower()).strip("-")[:_LONGEST] or "skill"
