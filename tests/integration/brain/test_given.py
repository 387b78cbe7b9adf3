"""A session that was given files, skills and memory: what its sandbox gets, and its model is told.

The same bytes each time, whichever brain sends them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from drover.event.v1.content_pb2 import ContentBlock, FileSource, ImageBlock, ImageSource, TextBlock
from drover.event.v1.event_pb2 import Event
from drover.event.v1.user_event_pb2 import UserMessage
from drover.hands.v1 import hands_service_pb2 as hands
from drover.hands.v1.mounts_pb2 import FoundSkill
from services.brain.domain import mounts
from tests.doubles.hands_service import result
from tests.doubles.lease_service import FakeSession
from tests.doubles.prompt_cache import PromptCache
from tests.doubles.scripted_model import Reply, response, text, tool
from tests.integration.brain.conftest import Rig
from tests.unit.brain import given

PNG = b"\x89PNG\r\n\x1a\nand so on"


def laden(rig: Rig, *, self_hosted: bool = False) -> FakeSession:
    session = rig.session(self_hosted=self_hosted)
    session.session.agent.skills.extend([given.skill("pdf"), given.skill("pdf", 2)])
    stores = [given.store("notes", instructions="Note dates."), given.store("law", "read_only")]
    session.session.resources.extend(stores)
    if not self_hosted:
        session.session.resources.append(given.file("a.csv"))
    return session


def show(session: FakeSession, words: str) -> None:
    source = ImageSource(file=FileSource(file_id="file_png"))
    blocks = [
        ContentBlock(text=TextBlock(text=words)),
        ContentBlock(image=ImageBlock(source=source)),
    ]
    session.send(Event(user_message=UserMessage(content=blocks)))


def finds(rig: Rig) -> None:
    async def behave(_request: hands.ExecuteRequest) -> hands.ExecuteResponse:
        answer = result("a.csv")
        answer.found_skills.append(
            FoundSkill(
                name="lint", description="Checks code.", path="/workspace/.claude/skills/lint"
            )
        )
        return answer

    rig.hands.behaviours["ls"] = behave


def system(rig: Rig) -> str:
    return "\n".join(block["text"] for block in rig.model.requests[-1]["system"])


async def test_everything_given_is_sent_twice_the_same_by_two_brains(rig: Rig) -> None:
    session = laden(rig)
    rig.files.add("file_png", "image/png", PNG)
    finds(rig)
    rig.model.say(tool("bash", {"command": "ls"}))
    rig.model.say(text("Done."))
    show(session, "Look, and list the files.")
    await rig.wake(session)
    told = system(rig)
    for place in (
        "/mnt/session/uploads/a.csv",
        "/mnt/session/outputs",
        "/mnt/skills/pdf/SKILL.md",
        "/mnt/skills/pdf-2/SKILL.md",
        "/mnt/memory/notes",
        "/mnt/memory/law",
        "Note dates.",
    ):
        assert place in told
    # A brain that only knows the log, at the same place of it.
    last = rig.model.bodies[-1]
    session.log = session.log[: session.kinds.index("agent_tool_result") + 1]
    session.held = False
    await rig.wake(session)
    assert rig.model.bodies[-1] == last
    cache = PromptCache()
    first, second = map(cache.send, rig.model.bodies[:2])
    assert second.cache_read == first.total


async def test_all_is_brought_with_the_sandbox_and_with_each_call(rig: Rig) -> None:
    session = laden(rig)
    rig.model.say(tool("bash", {"command": "ls"}))
    session.message("Go")
    await rig.wake(session)
    brought = mounts.of(session.session)
    assert brought is not None
    assert [request.mounts for request in rig.hands.requests] == [brought]
    assert [request.mounts for request in rig.hands.provision_requests] == [brought]
    bare = rig.session()
    rig.model.say(tool("bash", {"command": "ls"}))
    bare.message("Go")
    await rig.wake(bare)
    assert not rig.hands.requests[-1].HasField("mounts")


async def test_warm_brain_brings_what_the_session_was_given_since_it_last_worked(rig: Rig) -> None:
    session, brain = laden(rig), await rig.brain()
    session.message("Hi")
    await rig.wake(session, brain)
    assert "b.csv" not in system(rig)
    session.session.resources.append(given.file("b.csv"))
    rig.model.say(tool("bash", {"command": "ls"}))
    session.message("And now?")
    await rig.wake(session, brain)
    assert "/mnt/session/uploads/b.csv" in system(rig)
    assert [it.mount_path for it in rig.hands.requests[-1].mounts.files][-1].endswith("b.csv")
    # What the sessions of the agent have in common is read from the cache all the same.
    cache = PromptCache()
    _, second, _ = map(cache.send, rig.model.bodies)
    assert second.cache_read > 0


async def test_message_that_comes_while_the_brain_works_may_be_about_a_newer_file(rig: Rig) -> None:
    session, brain = laden(rig), await rig.brain()
    rig.model.add(working := Reply(response(text("Hello")), hold=1))
    rig.model.say(tool("bash", {"command": "ls"}))
    session.message("Hi")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rig.wake(session, brain))
        await working.reached.wait()
        session.session.resources.append(given.file("b.csv"))
        session.message("What is in b.csv?")
        working.release.set()
    assert session.generation == 1
    assert "/mnt/session/uploads/b.csv" in system(rig)
    assert [it.mount_path for it in rig.hands.requests[-1].mounts.files][-1].endswith("b.csv")


async def test_skills_that_were_found_stand_behind_the_result_in_the_log_for_good(rig: Rig) -> None:
    session = rig.session()
    finds(rig)
    rig.model.say(tool("bash", {"command": "ls"}))
    session.message("Go")
    await rig.wake(session)
    (told,) = session.of("agent_tool_result")
    said = [block.text.text for block in told.agent_tool_result.content]
    assert said[0] == "a.csv"
    assert "- lint: Checks code. (/workspace/.claude/skills/lint)" in said[1]
    shown: dict[str, Any] = rig.model.requests[-1]["messages"][-1]["content"][0]
    assert [block["text"] for block in shown["content"]] == said


async def test_session_of_workers_is_told_of_their_places_and_nothing_is_brought(rig: Rig) -> None:
    session = laden(rig, self_hosted=True)
    session.message("Hi")
    await rig.wake(session)
    told = system(rig)
    assert "(skills/pdf/SKILL.md)" in told
    assert "/mnt/memory/notes" in told
    assert "/mnt/session/outputs" not in told
    assert rig.hands.provision_requests == []
