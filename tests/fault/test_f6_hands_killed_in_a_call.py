"""F6: the hands are killed, or a sandbox is, while a tool runs."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from drover.hands.v1.hands_service_pb2 import VERDICT_OUTCOME_UNKNOWN
from tests.doubles.hands_stack import HandsStack, Sandboxes, running, text
from tests.doubles.hands_waiting import eventually
from tests.doubles.messages_api import ToolUse, tools
from tests.doubles.messages_api import text as says
from tests.e2e.driving import history, new_session, send, texts
from tests.e2e.stack import Stack
from tests.fault.test_f4_killed_between_run_and_record import below

_WORK = "echo one >kept; mkdir -p d; echo two >d/kept; touch begun; echo $$ >pid; sleep 607"
_LOOK = "cat kept d/kept; pgrep -c 'sleep' || :; echo shell=$x"


def killed(stack: Stack, kill: Any) -> list[Any]:
    """The log of a turn in whose first call `kill` is done."""
    stack.model.script(
        tools(ToolUse("bash", {"command": f"x=1; {_WORK}"})),
        tools(ToolUse("bash", {"command": _LOOK})),
        says("went on"),
    )
    with stack.client() as client:
        session = new_session(client)
        send(client, session.id, "go")
        begun = stack.workspace(session.id) / "begun"
        stack.wait_for(begun.exists, "the command to begin")
        kill()
        stack.until_idle(client, session.id)
        return history(client, session.id)


def check(log: list[Any]) -> None:
    """What the log tells: the first call's end is unknown, the second finds the files."""
    first, second = [event for event in log if event.type == "agent.tool_result"]
    assert first.is_error
    assert "unknown" in first.content[0].text
    assert not second.is_error
    lines = second.content[0].text.split("\n")
    assert lines[:4] == ["one", "two", "0", "shell="]
    assert texts(log, "agent.message") == ["went on"]
    assert log[-1].type == "session.status_idle"


def test_hands_killed_in_a_call_give_an_error_and_the_next_call_a_fresh_sandbox(
    own_stack: Stack,
) -> None:
    stack = own_stack
    check(killed(stack, lambda: stack.kill("hands")))
    stack.wait_for(lambda: not stack.host_processes("sleep 607"), "its death")


def test_sandbox_killed_in_a_call_gives_an_error_and_the_next_call_a_fresh_one(
    own_stack: Stack,
) -> None:
    stack = own_stack
    before = stack.pid("hands")

    def kill() -> None:
        def sleeps() -> bool:
            return any(b"sleep\x00607" in _command(pid) for pid in below(before))

        stack.wait_for(sleeps, "what the command runs last")
        for pid in below(before):
            if b"bwrap" in _command(pid) or b"/run/agent" in _command(pid):
                with suppress(ProcessLookupError):  # it went with another
                    os.kill(pid, signal.SIGKILL)

    check(killed(stack, kill))
    assert stack.pid("hands") == before
    stack.wait_for(lambda: not stack.host_processes("sleep 607"), "its death")


async def test_first_process_of_a_sandbox_killed_from_outside(
    sandboxes: Sandboxes, hands: HandsStack
) -> None:
    """On each kind of sandbox: none of it is left, and the work is there."""
    await hands.bash("true")
    processes = hands.processes()
    asked = asyncio.create_task(hands.run("bash", command=_WORK))
    volume = hands.pool._workspaces.find("sesn_1")
    assert volume is not None
    await eventually((volume.root / "workspace" / "begun").exists)
    processes |= hands.processes()
    for pid in sorted(processes):
        if running(pid):
            os.kill(pid, signal.SIGKILL)
            break
    result = await asked
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert "unknown" in text(result)
    await eventually(lambda: not any(map(running, processes)))
    assert (await hands.bash("cat kept d/kept")).startswith("one\ntwo")
    assert sandboxes.kind == hands.backend.name


@pytest.mark.parametrize("tool", ["read", "glob", "grep"])
async def test_tool_that_only_reads_is_run_again_in_the_next_sandbox(
    hands: HandsStack, tool: str
) -> None:
    await hands.bash("echo needle >f")
    given = {"read": {"file_path": "f"}, "glob": {"pattern": "*"}, "grep": {"pattern": "needle"}}
    for pid in hands.processes():
        with suppress(ProcessLookupError):  # it went with another
            os.kill(pid, signal.SIGKILL)
    result = await hands.run(tool, **given[tool])
    assert not result.is_error
    assert ("needle" if tool != "glob" else "/workspace/f") in text(result)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
