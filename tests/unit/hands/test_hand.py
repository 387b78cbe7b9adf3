"""The host believes nothing that comes out of a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from services.hands.backends.port import BackendUnavailable, SandboxSpec, Volume
from services.hands.domain.limits import Limits
from services.hands.domain.printed import Chunk, Follower, Printed
from services.hands.domain.toolset import ToolCall
from services.hands.hand import Hand, HandDied, Reply
from tests.doubles.hands_backend import ScriptedSandbox

Open = Callable[..., Awaitable[tuple[Hand, ScriptedSandbox]]]


@pytest.fixture
async def hands() -> Any:
    opened: list[Hand] = []
    async with asyncio.TaskGroup() as tasks:

        async def make(
            *, grace: float = 5.0, greeting: bytes | None = None
        ) -> tuple[Hand, ScriptedSandbox]:
            spec = SandboxSpec("hand_1", Volume(Path("unused"), None), Limits())
            sandbox = ScriptedSandbox(spec)
            await sandbox.open(greeting)
            hand = Hand("hand_1", sandbox, grace=grace)
            opened.append(hand)
            await hand.open(tasks)
            return hand, sandbox

        yield make
        for hand in opened:
            await hand.kill("the test ends")


def run(hand: Hand, call_id: str = "c1", *, timeout: float = 60.0) -> asyncio.Task[Reply]:
    call = ToolCall("bash", {"command": "x"}, timeout)
    return asyncio.create_task(hand.run(call_id, call))


async def test_reply_carries_text_error_and_duration(hands: Open) -> None:
    hand, sandbox = await hands()
    asked = run(hand)
    sandbox.answer(await sandbox.frames.get(), "out\0put", error=True)
    reply = await asked
    assert reply.content[0].text.text == "out\ufffdput"
    assert reply.is_error
    assert reply.duration.total_seconds() == 0.0015


async def test_empty_text_is_a_reply_without_content(hands: Open) -> None:
    hand, sandbox = await hands()
    asked = run(hand)
    sandbox.answer(await sandbox.frames.get(), "")
    assert (await asked).content == ()


async def test_image_and_document_are_blocks(hands: Open) -> None:
    hand, sandbox = await hands()
    for block in (
        {"type": "image", "media_type": "image/png", "data": "aGk="},
        {"type": "document", "media_type": "application/pdf", "data": "aGk="},
    ):
        asked = run(hand)
        sandbox.answer(await sandbox.frames.get(), block=block)
        content = (await asked).content[0]
        source = getattr(content, block["type"]).source.base64
        assert (source.media_type, source.data) == (block["media_type"], "aGk=")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x04nope",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x02{}",
        b'\x00\x00\x00\x0f{"type":"other"}'[:19],
        b'\x00\x00\x00\x09"\xed\xa0\x80\xff\xff\xff\xff"',
    ],
)
async def test_frame_that_no_agent_sends_ends_the_sandbox(hands: Open, garbage: bytes) -> None:
    hand, sandbox = await hands()
    asked = run(hand)
    await sandbox.frames.get()
    sandbox.send_bytes(garbage)
    with pytest.raises(HandDied, match="its agent sent"):
        await asked
    assert hand.dead.is_set()
    assert sandbox.killed.is_set()


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "1"},
        {"id": []},
        {"id": None},
        {"text": 5},
        {"text": None},
        {"error": "no"},
        {"ended": "somehow"},
        {"milliseconds": -1},
        {"milliseconds": 1e300},
        {"milliseconds": None},
        {"block": "x"},
        {"block": {"type": "image", "media_type": "image/svg+xml", "data": "aGk="}},
        {"block": {"type": "image", "media_type": "image/png", "data": "not base64"}},
        {"block": {"type": "text", "media_type": "text/plain", "data": "aGk="}},
        {"block": {"type": [], "media_type": "image/png", "data": "aGk="}},
        {"block": {"type": "image", "media_type": [], "data": "aGk="}},
    ],
)
async def test_result_that_is_not_well_formed_ends_the_sandbox(
    hands: Open, changes: dict[str, Any]
) -> None:
    hand, sandbox = await hands()
    asked = run(hand)
    sandbox.answer(await sandbox.frames.get(), **changes)
    with pytest.raises(HandDied):
        await asked


@pytest.mark.parametrize("number", [99, -1])
async def test_answer_to_a_call_that_was_never_made_ends_the_sandbox(
    hands: Open, number: int
) -> None:
    hand, sandbox = await hands()
    asked = run(hand)
    await sandbox.frames.get()
    sandbox.answer({"id": number}, "forged")
    with pytest.raises(HandDied, match="of no call"):
        await asked


async def test_second_answer_to_a_call_changes_nothing_and_ends_the_sandbox(hands: Open) -> None:
    hand, sandbox = await hands()
    asked = run(hand)
    call = await sandbox.frames.get()
    sandbox.answer(call, "first")
    sandbox.answer(call, "second")
    assert (await asked).content[0].text.text == "first"
    await sandbox.killed.wait()


async def test_only_a_file_that_is_read_may_be_large(hands: Open) -> None:
    hand, sandbox = await hands()
    image = {"type": "image", "media_type": "image/png", "data": "a" * (4 << 20)}
    reading = asyncio.create_task(hand.run("r", ToolCall("read", {"file_path": "x"}, 60.0)))
    sandbox.answer(await sandbox.frames.get(), block=image)
    assert len((await reading).content[0].image.source.base64.data) == 4 << 20
    asked = run(hand)
    sandbox.answer(await sandbox.frames.get(), "x" * (4 << 20))
    with pytest.raises(HandDied, match="a frame of"):
        await asked


async def test_call_past_its_deadline_and_grace_ends_the_sandbox(hands: Open) -> None:
    hand, sandbox = await hands(grace=0.01)
    with pytest.raises(HandDied, match="past its deadline"):
        await run(hand, timeout=0.01)
    await sandbox.killed.wait()


async def test_call_in_a_dead_sandbox_is_refused(hands: Open) -> None:
    hand, _ = await hands()
    await hand.kill("it was idle")
    with pytest.raises(HandDied, match="it was idle"):
        await run(hand)


async def test_spill_path_holds_no_foreign_characters(hands: Open) -> None:
    hand, sandbox = await hands()
    asked = run(hand, "../../etc/passwd\n")
    call = await sandbox.frames.get()
    assert call["spill"] == "/mnt/session/tool_outputs/______etc_passwd_.txt"
    sandbox.answer(call)
    await asked


@pytest.mark.parametrize(
    ("greeting", "text"),
    [
        (b"bwrap: setting up uid map: Permission denied\n", "user namespaces must be allowed"),
        (b"bwrap: execvp /usr/bin/python3: No such file\n", "No such file"),
        (b"\x7fELF\x02\x01", "did not start"),
    ],
)
async def test_complaint_of_a_sandbox_that_does_not_start_is_told(
    hands: Open, greeting: bytes, text: str
) -> None:
    opening = asyncio.create_task(hands(greeting=greeting))
    with pytest.raises(BackendUnavailable, match=text):
        await opening


async def test_command_is_followed_from_its_start_or_from_later_and_no_longer_than_wanted(
    hands: Open,
) -> None:
    hand, sandbox = await hands()
    printed = Printed()
    call = ToolCall("bash", {"command": "x"}, 60.0)
    asked = asyncio.create_task(hand.run("c1", call, printed.put))
    number = (await sandbox.frames.get())["id"]
    assert await sandbox.frames.get() == {"type": "follow", "id": number, "on": True}
    sandbox.send({"type": "output", "id": number, "text": "a\u00c3", "dropped": 0})
    hand.follow("c1", None)
    assert await sandbox.frames.get() == {"type": "follow", "id": number, "on": False}
    # It was on its way.
    sandbox.send({"type": "output", "id": number, "text": "\u00bcb", "dropped": 2})
    hand.follow("c2", printed.put)
    sandbox.answer({"id": number}, "done")
    await asked
    assert sandbox.frames.empty()
    assert Follower(printed).take(last=True) == [Chunk("a"), Chunk("b", 4)]


@pytest.mark.parametrize(
    "frame",
    [
        {"text": "\u20ac", "dropped": 0},
        {"text": 1, "dropped": 0},
        {"text": "a", "dropped": -1},
        {"text": "a", "dropped": "1"},
        {"text": "a"},
    ],
)
async def test_output_that_is_none_ends_the_sandbox(hands: Open, frame: dict[str, Any]) -> None:
    hand, sandbox = await hands()
    asked = asyncio.create_task(hand.run("c1", ToolCall("bash", {}, 60.0), Printed().put))
    number = (await sandbox.frames.get())["id"]
    sandbox.send({"type": "output", "id": number, **frame})
    with pytest.raises(HandDied, match="its agent sent output that is n"):
        await asked


async def test_output_that_nobody_asked_for_ends_the_sandbox(hands: Open) -> None:
    hand, sandbox = await hands()
    asked = run(hand)
    number = (await sandbox.frames.get())["id"]
    sandbox.send({"type": "output", "id": number, "text": "a", "dropped": 0})
    with pytest.raises(HandDied, match="a frame of unknown type"):
        await asked
