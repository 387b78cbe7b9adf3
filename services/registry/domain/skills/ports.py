"""What the registry needs of a store of skills. Every call is scoped to one workspace.

Versions are named by their ids, or `latest`. What is said in `services.registry.domain.ports` of
calls with a `once` holds here, too. One contract suite (tests/contract/registry) runs over every
implementation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from catalogue.resources.once import Once
from drover.skill.v1.skill_pb2 import Skill, SkillVersion
from services.registry.domain.ports import Listing


@dataclass(frozen=True, slots=True)
class Archive:
    """Where the bytes of a version are: an object by its name, and how large it is."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Pin:
    """A version of a skill, as a reference names it."""

    skill_id: str
    version: str


class SkillStore(Protocol):
    """Skills with their versions, which never change; a skill has at least one."""

    async def add(
        self,
        workspace_id: str,
        skill: Skill,
        version: SkillVersion,
        archive: Archive,
        once: Once[Skill] | None = None,
    ) -> Skill:
        """Keeps a new skill with its first version, and answers it; durable on return."""
        ...

    async def add_version(
        self,
        workspace_id: str,
        version: SkillVersion,
        archive: Archive,
        once: Once[SkillVersion] | None = None,
    ) -> SkillVersion:
        """Keeps another version, and answers it; durable on return.

        Raises NOT_FOUND, and as `check_same_name`.
        """
        ...

    async def get(self, workspace_id: str, skill_id: str) -> Skill:
        """Raises NOT_FOUND."""
        ...

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Skill]:
        """Skills, newest first."""
        ...

    async def version(
        self, workspace_id: str, skill_id: str, version: str
    ) -> tuple[SkillVersion, Archive]:
        """A version. Raises NOT_FOUND."""
        ...

    async def versions(
        self, workspace_id: str, skill_id: str, listing: Listing
    ) -> Sequence[SkillVersion]:
        """A skill's versions, newest first. Raises NOT_FOUND."""
        ...

    async def find(self, workspace_id: str, pins: Collection[Pin]) -> Mapping[Pin, SkillVersion]:
        """The versions that there are, of those named."""
        ...

    async def delete(self, workspace_id: str, skill_id: str, once: Once[str] | None = None) -> None:
        """Deletes a skill with its versions; a `once` is given its id. Raises NOT_FOUND."""
        ...

    async def delete_version(
        self,
        workspace_id: str,
        skill_id: str,
        version: str,
        at: datetime,
        once: Once[str] | None = None,
    ) -> str:
        """Deletes a version, and answers its id. Raises NOT_FOUND, and `last_version`."""
        ...
