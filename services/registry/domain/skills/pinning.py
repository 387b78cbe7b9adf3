"""The skills of an agent: each at one version, with the words that the model is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from chassis.errors import DroverError, Reason
from services.registry.domain.skills.ports import Pin
from services.registry.domain.skills.skill import LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drover.agent.v1.agent_pb2 import Skill, SkillReference
    from services.registry.domain.skills.ports import SkillStore


def check_skills(skills: Iterable[Skill], path: str) -> None:
    """Raises INVALID_ARGUMENT for skills that no installation has, or one that is named twice."""
    seen: set[str] = set()
    for index, skill in enumerate(skills):
        if skill.HasField("anthropic"):
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                f"{path}.{index}.type: this installation has no skills of Anthropic's. Upload the "
                "folder of one with `drover skills push DIR`, and name it with type custom",
            )
        skill_id = skill.custom.skill_id
        if skill_id in seen:
            raise DroverError(
                Reason.INVALID_ARGUMENT, f"{path}.{index}.skill_id: {skill_id!r} is listed already"
            )
        seen.add(skill_id)


class Pinning:
    """Resolves agents' skills in the store of their workspace."""

    def __init__(self, store: SkillStore) -> None:
        self._store = store

    async def settle(self, workspace_id: str, skills: Sequence[Skill], path: str) -> None:
        """Pins each of checked `skills` to the version that it names, by default the latest.

        Raises NOT_FOUND, naming a path below `path`, for a skill or a version that is not there.
        """
        pins = [_pin(skill.custom) for skill in skills]
        if not pins:
            return
        found = await self._store.find(workspace_id, pins)
        for index, (skill, pin) in enumerate(zip(skills, pins, strict=True)):
            version = found.get(pin)
            if version is None:
                await self._refuse(workspace_id, pin, f"{path}.{index}")
            skill.custom.version = version.id
            skill.custom.name, skill.custom.description = version.name, version.description

    async def _refuse(self, workspace_id: str, pin: Pin, path: str) -> NoReturn:
        try:
            await self._store.version(workspace_id, pin.skill_id, pin.version)
        except DroverError as error:
            raise DroverError(error.reason, f"{path}: {error.message}") from None
        raise DroverError(Reason.CONFLICT, f"{path}: it was changed meanwhile")


def _pin(reference: SkillReference) -> Pin:
    return Pin(reference.skill_id, reference.version or LATEST)
