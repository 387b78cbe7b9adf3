"""A skill and its versions, as they are kept and told."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.skill.v1.skill_pb2 import CustomSource, Skill, SkillSource, SkillVersion

if TYPE_CHECKING:
    from datetime import datetime

    from services.registry.domain.skills.packing import Packed

LATEST: Final = "latest"
"""Stands for a skill's newest version, wherever one is named."""


def new_version(version_id: str, skill_id: str, packed: Packed, now: datetime) -> SkillVersion:
    """A version of what was packed."""
    version = SkillVersion(
        id=version_id,
        skill_id=skill_id,
        name=packed.text.name,
        description=packed.text.description,
        sha256=packed.sha256,
    )
    version.created_at.FromDatetime(now)
    return version


def new_skill(version: SkillVersion, display_name: str | None) -> Skill:
    """The skill whose first version that is."""
    return Skill(
        id=version.skill_id,
        created_at=version.created_at,
        updated_at=version.created_at,
        display_name=version.name if display_name is None else display_name,
        latest_version_id=version.id,
        source=SkillSource(custom=CustomSource()),
    )


def check_display_name(display_name: str) -> None:
    """Raises INVALID_ARGUMENT for what is no label of a single line."""
    if not display_name.strip():
        raise DroverError(Reason.INVALID_ARGUMENT, "display_name: must not be empty")
    if any(unicodedata.category(one) in ("Cc", "Zl", "Zp") for one in display_name):
        raise DroverError(Reason.INVALID_ARGUMENT, "display_name: must be of a single line")


def check_same_name(name: str, version: SkillVersion) -> None:
    """Raises INVALID_ARGUMENT for a version whose name is not its skill's."""
    if version.name != name:
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            f"files: the name is {version.name!r}, but every version of this skill has the name "
            f"{name!r}",
        )


def no_skill(skill_id: str) -> DroverError:
    """NOT_FOUND for a skill."""
    return DroverError(Reason.NOT_FOUND, f"no skill {skill_id!r}")


def no_version(skill_id: str, version: str) -> DroverError:
    """NOT_FOUND for a version of a skill."""
    return DroverError(Reason.NOT_FOUND, f"skill {skill_id!r} has no version {version!r}")


def last_version() -> DroverError:
    """INVALID_ARGUMENT for who would leave a skill without any version."""
    return DroverError(
        Reason.INVALID_ARGUMENT,
        "version: the last one of its skill cannot be deleted: delete the skill",
    )
