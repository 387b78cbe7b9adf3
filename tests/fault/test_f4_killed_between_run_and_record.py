"""F4: hands, and brains with them, die after a tool ran and before its result was recorded."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.messages_api import ToolUse, says, text, tools
from tests.e2e.driving import new_session, run_turn, send, texts
from tests.e2e.stack import Stack

_BASH = ToolUse("bash", {"command": "echo ran >> marks"})
_WRITE = ToolUse("write", {"file_path": "/workspace/written", "content": "ran\n"})
_EDIT = ToolUse(
    "edit", {"file_path": "/workspace/edited", "old_string": "x", "new_string": "ran x"}
)

CHANGING = {
    "bash": (_BASH, "marks", "ran\n"),
    "write": (_WRITE, "written", "ran\n"),
    "edit": (_EDIT, "edited", "ran x\n"),
}
READING = {
    "read": ToolUse("read", {"file_path": "/workspace/edited"}),
    "glob": ToolUse("glob", {"pattern": "*"}),
    "grep": ToolUse("grep", {"pattern": "x", "path": "/workspace/edited"}),
}
BRAINS = ("brain-1", "brain-2")


def below(pid: int) -> set[int]:
    """Every process below one, its threads' children included."""
    found: set[int] = set()
    pending = [pid]
    while pending:
        for task in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            try:
                new = set(map(int, task.read_text().split())) - found
            except OSError:
                continue
            found |= new
            pending += new
    return found


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


@contextmanager
def standing_still(stack: Stack) -> Iterator[set[int]]:
    """All that runs in sandboxes, stopped until it is told to go on."""
    pids = below(stack.pid("hands"))
    _signal(pids, signal.SIGSTOP)
    try:
        yield pids
    finally:
        _signal(pids, signal.SIGCONT)


@contextmanager
def unwritable(journal: Path) -> Iterator[None]:
    """Has nothing recorded in the hands' journal for the length of the block."""
    with closing(sqlite3.connect(journal, isolation_level=None, timeout=10)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


def begun(journal: Path, session: str, tool: str) -> bool:
    """Whether the journal has the start of a call that it has no end of."""
    with closing(sqlite3.connect(journal, timeout=10)) as database:
        found = database.execute(
            "SELECT count(*) FROM executions WHERE session_id = ? AND tool = ? AND result IS NULL",
            (session, tool),
        )
        return bool(found.fetchone()[0])


def killed_before_the_record(
    stack: Stack, call: ToolUse, effect: tuple[str, str] | None, *brains: str
) -> tuple[list[Any], Path]:
    """A turn whose tool ran when the hands were killed, with nothing of its result recorded.

    `effect` is a file and what is in it once the tool has run. Answers the log and the workspace.
    """
    journal = stack.data / "hands.db"
    prepare = ToolUse("bash", {"command": "echo x > edited"})
    stack.model.on(says("prepare"), tools(prepare), text("prepared"))
    stack.model.on(says("work"), tools(call))
    stack.model.default(lambda _: text("went on"))
    with stack.client() as client:
        session = new_session(client).id
        run_turn(client, session, "prepare")
        workspace = stack.workspace(session)
        with standing_still(stack) as pids:
            send(client, session, "work")
            stack.wait_for(lambda: begun(journal, session, call.name), "the call to be recorded")
            with unwritable(journal):
                _signal(pids, signal.SIGCONT)
                if effect is not None:
                    file = workspace / effect[0]
                    stack.wait_for(
                        lambda: file.exists() and file.read_text() == effect[1], "the tool to run"
                    )
                before = {name: stack.pid(name) for name in ("hands", *brains)}
                for pid in before.values():
                    os.kill(pid, signal.SIGKILL)
        for name, pid in before.items():
            stack.wait_for(
                lambda one=name, old=pid: stack.pids(one) not in (set(), {old}), f"another {name}"
            )
        return stack.until_idle(client, session, answers=2), workspace


@pytest.mark.parametrize(
    ("tool", "brains"), [("bash", ()), ("bash", BRAINS), ("write", ()), ("edit", ())], ids=str
)
def test_tool_that_changes_things_is_reported_unknown_and_not_run_again(
    own_stack: Stack, tool: str, brains: tuple[str, ...]
) -> None:
    call, name, content = CHANGING[tool]
    log, workspace = killed_before_the_record(own_stack, call, (name, content), *brains)
    _, result = [event for event in log if event.type == "agent.tool_result"]
    assert result.is_error
    assert "unknown" in result.content[0].text
    assert (workspace / name).read_text() == content
    assert texts(log, "agent.message") == ["prepared", "went on"]


@pytest.mark.parametrize(
    ("tool", "brains"), [("read", ()), ("read", BRAINS), ("glob", ()), ("grep", ())], ids=str
)
def test_tool_that_only_reads_is_run_once_more(
    own_stack: Stack, tool: str, brains: tuple[str, ...]
) -> None:
    log, _ = killed_before_the_record(own_stack, READING[tool], None, *brains)
    _, result = [event for event in log if event.type == "agent.tool_result"]
    assert not result.is_error
    assert ("edited" if tool == "glob" else "x") in result.content[0].text
    with closing(sqlite3.connect(own_stack.data / "hands.db")) as journal:
        rows = journal.execute(
            "SELECT starts, result IS NULL FROM executions WHERE call_id = ?", (result.tool_use_id,)
        ).fetchall()
    assert rows == [(2, 0)]
