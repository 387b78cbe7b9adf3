"""Who is told of the skills that lie in a workspace, and how often."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.domain.repository import Repository
from services.hands.skills.found import FoundSkills
from tests.unit.hands.conftest import World

REPOSITORIES = (Repository("sesrsc_1", "https://x/y", "/workspace/deep/repo"),)


pytestmark = pytest.mark.usefixtures("found")


@pytest.fixture
def found(world: World) -> None:
    world.pool.attendants.append(FoundSkills(world.pool, world.workspaces))


def skill(world: World, place: str, where: str = "sesn_1") -> Path:
    folder = world.directory / "workspaces" / where / "workspace" / place / ".claude/skills/mine"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\ndescription: Mine.\n---\n")
    return folder


def ask(world: World, call_id: str) -> asyncio.Task[ExecuteResponse]:
    call = world.executor.execute("sesn_1", call_id, 1, "bash", json.dumps({"command": "x"}))
    return asyncio.create_task(call)


async def answered(world: World, call_id: str, sandbox: int = -1) -> list[str]:
    asked = ask(world, call_id)
    async with asyncio.timeout(30):
        while not world.backend.launched:
            await world.backend.starting.wait()
            await asyncio.sleep(0)
        agent = world.backend.launched[sandbox]
        agent.answer(await agent.frames.get())
        return [one.path for one in (await asked).found_skills]


async def test_a_new_workspace_without_repositories_is_not_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        pytest.fail("it was looked at")

    monkeypatch.setattr("services.hands.skills.found._untold", never)
    assert await answered(world, "c1") == []


async def test_skills_of_repositories_are_told_with_the_first_call_wherever_they_are(
    world: World,
) -> None:
    hand, _ = await world.executor.provision("sesn_1", 1)
    access: Any = SimpleNamespace(
        repositories=REPOSITORIES, settled=True, problems=(), close=lambda: None
    )
    hand.access = access
    skill(world, "deep/repo")
    told = ["/workspace/deep/repo/.claude/skills/mine/SKILL.md"]
    assert await answered(world, "c1") == told
    assert await answered(world, "c2") == []
    replayed = await ask(world, "c1")
    assert [one.path for one in replayed.found_skills] == told


async def test_they_are_told_with_the_next_call_where_the_first_came_to_nothing(
    world: World,
) -> None:
    await world.workspaces.make("sesn_1")
    skill(world, "")
    hand, _ = await world.executor.provision("sesn_1", 1)
    asked = ask(world, "c1")
    async with asyncio.timeout(30):
        await world.backend.launched[0].frames.get()
        await hand.kill("it was to be")
        assert not (await asked).found_skills
    await world.executor.provision("sesn_1", 1)
    assert await answered(world, "c2", 1) == ["/workspace/.claude/skills/mine/SKILL.md"]
    await world.pool.release("sesn_1")
    await world.executor.provision("sesn_1", 1)
    assert await answered(world, "c3", 2) == []


async def test_no_more_are_told_than_a_prompt_may_hold(world: World) -> None:
    await world.workspaces.make("sesn_1")
    for number in range(60):
        skill(world, f"r{number}")
    await world.executor.provision("sesn_1", 1)
    assert len(await answered(world, "c1")) == 50


async def test_texts_that_are_slow_to_read_hold_up_the_first_call_no_longer_than_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.workspaces.make("sesn_1")
    slow = f"---\nother: [{'x,' * 7000}]\n---\n"
    for number in range(3):
        (skill(world, f"r{number}") / "SKILL.md").write_text(slow)
    skill(world, "z")
    await world.executor.provision("sesn_1", 1)
    monkeypatch.setattr("services.hands.skills.found._SECONDS", 0.0)
    assert await answered(world, "c1") == []


@pytest.mark.parametrize("description", [r"\Uffffffff", r"\ud800", r"\e[2J", r"\u202e"])
async def test_a_text_that_cannot_be_told_is_left_out_and_those_beside_it_are_told(
    world: World, description: str
) -> None:
    await world.workspaces.make("sesn_1")
    (skill(world, "a") / "SKILL.md").write_text(f'---\ndescription: "{description}"\n---\n')
    skill(world, "b")
    await world.executor.provision("sesn_1", 1)
    assert await answered(world, "c1") == ["/workspace/b/.claude/skills/mine/SKILL.md"]


@pytest.mark.parametrize(("failing", "told"), [("scan", 0), ("beneath.replace", 1)])
async def test_whatever_fails_of_it_the_call_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, failing: str, told: int
) -> None:
    def fail(*_: object) -> None:
        raise OverflowError

    await world.workspaces.make("sesn_1")
    skill(world, "")
    await world.executor.provision("sesn_1", 1)
    monkeypatch.setattr(f"services.hands.skills.found.{failing}", fail)
    with structlog.testing.capture_logs() as logs:
        assert len(await answered(world, "c1")) == told
    assert [one["reason"] for one in logs if "reason" in one] == ["OverflowError"]
