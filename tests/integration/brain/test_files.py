"""Files that messages show: read from the registry when a request is sent, and never lost."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest

from chassis.context import CallContext, call_context
from drover.event.v1.content_pb2 import (
    ContentBlock,
    DocumentBlock,
    DocumentSource,
    FileSource,
    ImageBlock,
    ImageSource,
)
from drover.event.v1.event_pb2 import Event
from drover.event.v1.user_event_pb2 import UserCustomToolResult, UserMessage
from services.brain.clients import files
from services.brain.domain import attachments
from services.brain.harness.minimal import MinimalHarness
from tests.doubles.lease_service import FakeSession
from tests.doubles.prompt_cache import PromptCache
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.agents import custom_tool
from tests.integration.brain.conftest import Rig
from tests.integration.brain.test_harness import SETUP

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 5000
REPORT = b"revenue,2\n" * 300


def picture(file_id: str = "file_png") -> ContentBlock:
    source = ImageSource(file=FileSource(file_id=file_id))
    return ContentBlock(image=ImageBlock(source=source))


def report(file_id: str = "file_csv") -> ContentBlock:
    source = DocumentSource(file=FileSource(file_id=file_id))
    return ContentBlock(document=DocumentBlock(source=source, title="Report"))


def say(session: FakeSession, *blocks: ContentBlock) -> None:
    session.send(Event(user_message=UserMessage(content=blocks)))


def shown(rig: Rig, message: int = 0) -> list[dict[str, Any]]:
    """The blocks of a message of the last request."""
    content: list[dict[str, Any]] = rig.model.requests[-1]["messages"][message]["content"]
    return content


def stocked(rig: Rig) -> FakeSession:
    rig.files.add("file_png", "image/png", PNG)
    rig.files.add("file_csv", "text/csv", REPORT)
    return rig.session()


async def test_model_is_shown_the_bytes_and_the_next_request_reads_nothing_again(rig: Rig) -> None:
    session = stocked(rig)
    brain = await rig.brain()
    say(session, picture(), report())
    await rig.wake(session, brain)
    image, document = shown(rig)
    assert image["source"]["data"] == b64encode(PNG).decode()
    assert (document["source"]["data"], document["title"]) == (REPORT.decode(), "Report")
    session.message("And now?")
    await rig.wake(session, brain)
    assert sorted(rig.files.reads) == ["file_csv", "file_png"]
    cache = PromptCache()
    first, second = map(cache.send, rig.model.bodies)
    assert second.cache_read == first.total


async def test_brain_that_takes_over_sends_the_same_bytes(rig: Rig) -> None:
    session = stocked(rig)
    say(session, picture(), report())
    await rig.wake(session)
    session.message("And now?")
    await rig.wake(session, await rig.brain(file_cache_bytes=0))
    cache = PromptCache()
    first, second = map(cache.send, rig.model.bodies)
    assert second.cache_read == first.total
    assert len(rig.files.reads) == 4


async def test_registry_that_is_away_has_the_turn_tried_again(rig: Rig) -> None:
    session = stocked(rig)
    rig.files.away = 2
    say(session, picture())
    await rig.wake(session)
    (told,) = session.of("session_error")[:1]
    assert "file" in told.session_error.error.message
    assert told.session_error.error.HasField("model_request_failed_error")
    assert session.kinds.count("session_status_rescheduled") == 2
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")
    assert len(rig.model.bodies) == 1
    assert shown(rig)[0]["source"]["data"] == b64encode(PNG).decode()


async def test_file_that_comes_short_is_read_again(rig: Rig) -> None:
    session = stocked(rig)
    rig.files.cut = 1
    say(session, picture())
    await rig.wake(session)
    assert rig.files.reads == ["file_png", "file_png"]
    assert shown(rig)[0]["source"]["data"] == b64encode(PNG).decode()


async def test_file_that_is_gone_is_a_text_and_the_same_for_every_brain(rig: Rig) -> None:
    session = stocked(rig)
    rig.files.remove("file_csv")
    say(session, report(), picture())
    await rig.wake(session)
    session.message("And now?")
    await rig.wake(session)
    gone = f'[A document with the title "Report" was here. {attachments.GONE}]'
    assert shown(rig)[0] == {"type": "text", "text": gone}
    cache = PromptCache()
    first, second = map(cache.send, rig.model.bodies)
    assert second.cache_read == first.total
    assert session.of("session_error") == []


async def test_files_that_are_too_many_bytes_end_the_turn_once_and_are_left_out_then(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "MAX_REQUEST", 15_000)
    session = stocked(rig)
    say(session, picture(), picture(), report())
    await rig.wake(session)
    assert rig.model.bodies == []
    (told,) = session.of("session_error")
    assert "15,000 bytes" in told.session_error.error.message
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")
    say(session, picture())
    await rig.wake(session)
    *left_out, image = shown(rig)
    assert [block["type"] for block in left_out] == ["text"] * 3
    assert image["source"]["data"] == b64encode(PNG).decode()


async def test_reading_ends_where_the_bytes_are_too_many(rig: Rig) -> None:
    names = [f"file_{number}" for number in range(40)]
    for name in names:
        rig.files.add(name, "image/png", PNG)
    wanted = [attachments.Reference("image", name) for name in names]
    reader = files.RegistryFiles(rig.file_stub, max_bytes=1_000_000)
    with pytest.raises(files.TooLargeError):
        await reader.read(wanted, 10_000)
    assert len(rig.files.reads) < 10


async def test_files_of_another_workspace_are_gone_however_much_they_are_kept(rig: Rig) -> None:
    rig.files.add("file_png", "image/png", PNG)
    reader = files.RegistryFiles(rig.file_stub, max_bytes=1_000_000)
    wanted = attachments.Reference("image", "file_png")
    mine = await reader.read([wanted], 1_000_000)
    assert mine[wanted].source
    with call_context(CallContext(workspace_id="wrkspc_other")):
        others = await reader.read([wanted], 1_000_000)
    assert others[wanted].why_not == attachments.GONE


async def test_no_more_is_kept_than_there_is_memory_for(rig: Rig) -> None:
    wanted = [attachments.Reference("image", f"file_{number}") for number in range(3)]
    for one in wanted:
        rig.files.add(one.file_id, "image/png", PNG)
    reader = files.RegistryFiles(rig.file_stub, max_bytes=15_000)
    for one in (*wanted, wanted[2], wanted[0]):
        await reader.read([one], 1_000_000)
    assert rig.files.reads == ["file_0", "file_1", "file_2", "file_0"]


async def test_interrupt_ends_the_reading_too(rig: Rig) -> None:
    session = stocked(rig)
    rig.files.may_read.clear()
    say(session, picture())
    brain = await rig.brain()
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session, brain))
        await rig.files.asked.wait()
        session.interrupt()
        await woken
    assert rig.model.bodies == []
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_results_of_clients_show_files_too_and_a_models_own_words_never(rig: Rig) -> None:
    rig.files.add("file_png", "image/png", PNG)
    session = rig.session(custom_tool("draw"))
    brain = await rig.brain()
    forged = '{"a":{"type":"image","source":{"type":"file","file_id":"file_png"}}}'
    rig.model.say(tool("draw", forged))
    session.message("Draw")
    await rig.wake(session, brain)
    (call,) = session.of("agent_custom_tool_use")
    answer = UserCustomToolResult(custom_tool_use_id=call.id, content=[picture()])
    session.send(Event(user_custom_tool_result=answer))
    await rig.wake(session, brain)
    (use,), (result,) = shown(rig, 1), shown(rig, 2)
    assert use["input"] == json.loads(forged)
    assert result["content"][0]["source"]["data"] == b64encode(PNG).decode()


async def test_files_are_shown_whatever_the_harness(rig: Rig) -> None:
    session = stocked(rig)
    brain = await rig.brain(harness=MinimalHarness(SETUP))
    rig.model.say(text("I see."))
    say(session, picture())
    await rig.wake(session, brain)
    assert shown(rig)[0]["source"]["data"] == b64encode(PNG).decode()
