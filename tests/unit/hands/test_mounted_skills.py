"""Bringing skills of agents, whose archives are kept for the next session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from chassis.clock import SystemClock
from chassis.errors import DroverError, Reason
from drover.skill.v1.skill_pb2 import SkillVersion
from services.hands.bringing.bringer import Errand, NotBrought
from services.hands.domain.mounts import MountedSkill
from services.hands.files.source import Source
from services.hands.skills.mounted import AgentSkills
from tests.doubles.hands_registry import TEXT, skill_archive

ADDING = MountedSkill("skill_1", "1", "adding")


class Archives:
    """Where they come from. `breaks`: in the middle."""

    def __init__(self) -> None:
        self.asked = 0
        self.breaks = False

    @asynccontextmanager
    async def skill(
        self, workspace_id: str, skill_id: str, version: str
    ) -> AsyncIterator[tuple[SkillVersion, AsyncIterator[bytes]]]:
        self.asked += 1
        data = skill_archive()
        yield SkillVersion(id=version, sha256=sha256(data).hexdigest()), self._pieces(data)

    async def _pieces(self, data: bytes) -> AsyncIterator[bytes]:
        yield data[:100]
        if self.breaks:
            raise DroverError(Reason.UNAVAILABLE, "it has broken off")
        yield data[100:]


class World:
    def __init__(self, root: Path) -> None:
        self.archives = Archives()
        self.kept = root / "skills"
        self.root = root / "volume"
        self.root.mkdir()
        self.skills = AgentSkills(self.archives, Source(SystemClock(), free_bytes=0), root)

    async def bring(self, unfinished: str) -> bytes:
        await self.skills.bring(ADDING, Errand("sesn_1", "wrkspc_1", self.root, unfinished))
        return (self.root / unfinished / "SKILL.md").read_bytes()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_what_is_kept_is_not_fetched_again_unless_it_is_broken(world: World) -> None:
    assert await world.bring("one") == await world.bring("two") == TEXT
    assert world.archives.asked == 1
    [kept] = world.kept.iterdir()
    for broken in (b"", kept.read_bytes()[:200]):
        kept.write_bytes(broken)
        assert await world.bring(f"cut-{len(broken)}") == TEXT
    assert world.archives.asked == 3


async def test_nothing_stays_of_an_archive_that_did_not_come(world: World) -> None:
    world.archives.breaks = True
    with pytest.raises(NotBrought, match="broken off"):
        await world.bring("one")
    assert [*world.kept.iterdir()] == []


async def test_others_may_be_done_while_there_is_made_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kept.mkdir()
    (world.kept / "other.new").touch()
    listed = [*world.kept.iterdir()]
    (world.kept / "other.new").rename(world.kept / "other")
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))
    assert await world.bring("one") == TEXT
