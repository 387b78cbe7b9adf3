"""F9: bytes that are no text, NUL and halves of surrogate pairs, in whatever a tool says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from tests.doubles.hands_stack import HandsStack, text
from tests.doubles.messages_api import ToolUse, tools
from tests.doubles.messages_api import text as says
from tests.e2e.driving import history, new_session, run_turn
from tests.e2e.stack import Stack

# Every byte; NUL; both halves of a pair, encoded as if each were a character; overlong; cut short;
# and what is text, but often is mistaken: a byte order mark, separators, the last character.
BYTES = {
    "every byte": bytes(range(256)),
    "NUL": b"a\0b",
    "surrogates": b"\xed\xa0\x80 \xed\xb0\x80",
    "overlong": b"\xc0\x80 \xe0\x80\xaf",
    "cut short": b"\xf0\x9f\x98",
    "beyond": b"\xf4\x90\x80\x80 \xff\xfe",
    "text": "\ufeff \u2028\u2029 \U0010ffff \U0001f600".encode(),
}


def printf(data: bytes) -> str:
    return "printf '" + "".join(f"\\x{byte:02x}" for byte in data) + "'"


def sound(result: ExecuteResponse) -> str:
    """A result's text, which is what a database, JSON and every client can take."""
    shown = text(result)
    assert "\0" not in shown
    assert not any("\ud800" <= character <= "\udfff" for character in shown)
    assert json.loads(json.dumps(shown)) == shown
    assert ExecuteResponse.FromString(result.SerializeToString()) == result
    return shown


@pytest.mark.parametrize("stream", [1, 2])
async def test_output_is_text_with_what_is_none_replaced(hands: HandsStack, stream: int) -> None:
    for name, data in BYTES.items():
        result = await hands.run("bash", command=f"{printf(data)} >&{stream}", call_id=name)
        shown = sound(result)
        expected = data.decode("utf-8", "replace").replace("\0", "\ufffd")
        assert shown.rstrip("\n") == expected.rstrip("\n"), name
        # Asked again it is the same, to the last byte.
        again = await hands.run("bash", command=f"{printf(data)} >&{stream}", call_id=name)
        assert again.replayed
        assert again.content == result.content


async def test_names_and_contents_of_files_are_told_as_text(hands: HandsStack) -> None:
    for number, (name, data) in enumerate(BYTES.items()):
        clean = data.replace(b"\0", b"").replace(b"/", b"").replace(b"\n", b"")
        await hands.bash(f"{printf(b'needle ' + data)} >n{number}; {printf(clean)} >name")
        await hands.bash('mkdir -p strange && mv name "strange/$(cat name)" && touch strange/x')
        for result in (
            await hands.run("glob", pattern="**/*"),
            await hands.run("grep", pattern="needle"),
            await hands.run("grep", pattern="."),
            await hands.run("read", file_path=f"n{number}"),
            await hands.run("read", file_path=f"n{number}", view_range=[1, 1]),
            await hands.run("edit", file_path=f"n{number}", old_string="needle", new_string="n"),
        ):
            sound(result)
        read = await hands.run("read", file_path=f"n{number}")
        assert read.is_error == (name not in {"NUL", "text"}), name


async def test_input_that_is_no_text_is_refused_before_it_starts(hands: HandsStack) -> None:
    for tool, given in (
        ("bash", {"command": "echo \ud800"}),
        ("write", {"file_path": "a\udfff", "content": "x"}),
        ("write", {"file_path": "a", "content": "\udc00"}),
        ("grep", {"pattern": "\ud83d"}),
        ("read", {"file_path": "a\0b"}),
        ("bash", {"command": "echo a\0b"}),
    ):
        result = await hands.run(tool, **given)
        assert result.is_error
        sound(result)
    assert await hands.bash("ls") == ""


def test_events_are_sound_and_the_model_is_told_the_same_again(own_stack: Stack) -> None:
    """Through every process: the log, its reader, and the request of a brain that knows the log
    alone."""
    stack = own_stack
    commands = [ToolUse("bash", {"command": printf(data)}) for data in BYTES.values()]
    with stack.client() as client:
        session = new_session(client)
        stack.model.script(*(tools(command) for command in commands), says("one"))
        run_turn(client, session.id, "go")
        first = history(client, session.id)
        told = _results(stack.model.requests[-1].body)
        for brain in ("brain-1", "brain-2"):
            stack.kill(brain)
        stack.wait_ready()
        stack.model.script(says("two"))
        run_turn(client, session.id, "again")
        second = history(client, session.id)
    shown = [event.content[0].text for event in first if event.type == "agent.tool_result"]
    for data, got in zip(BYTES.values(), shown, strict=True):
        assert got == data.decode("utf-8", "replace").replace("\0", "\ufffd").rstrip("\n")
    assert [event.to_json() for event in first] == [
        event.to_json() for event in second[: len(first)]
    ]
    assert len(told) == len(BYTES)
    assert _results(stack.model.requests[-1].body) == told


def _results(request: dict[str, Any]) -> list[str]:
    """What a request says of the results of tools, without marks of the cache."""
    return [
        json.dumps(block["content"])
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
