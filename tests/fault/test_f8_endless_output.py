"""F8: a gibibyte of output, or one endless line: cut off with a note, and memory stays flat."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from tests.doubles import soak
from tests.doubles.hands_stack import HandsStack, Sandboxes, text
from tests.doubles.messages_api import ToolUse, tools
from tests.doubles.messages_api import text as says
from tests.e2e.driving import new_session, run_turn
from tests.e2e.stack import Stack

BYTES = int(soak.share(1 << 30))
FLAT = 32 << 20
_OUTPUTS = {
    "one endless line": f"head -c {BYTES} /dev/zero | tr '\\0' x",
    "lines": f"yes 'a line of output that goes on' | head -c {BYTES}",
}


@pytest.mark.timeout(soak.limit(120))
@pytest.mark.parametrize("kind", _OUTPUTS)
async def test_output_without_end_is_cut_off_and_memory_stays_flat(
    sandboxes: Sandboxes, hands: HandsStack, kind: str
) -> None:
    await hands.bash("true")
    before = _resident(os.getpid())
    result = await hands.run("bash", command=_OUTPUTS[kind], timeout_ms=600_000)
    assert f"it has {BYTES} bytes" in text(result)
    assert "and the last 102400" in text(result)
    assert len(text(result)) < 12_000
    assert _resident(os.getpid()) - before < FLAT
    if not sandboxes.runtime:  # the processes of a kernel in user space are its own
        assert max(_peak(pid) for pid in hands.processes()) < 64 << 20


@pytest.mark.timeout(soak.limit(120))
def test_hands_and_brain_stay_flat(own_stack: Stack) -> None:
    """The same through every process, as an agent would."""
    stack = own_stack
    with stack.client() as client:
        session = new_session(client)
        stack.model.script(tools(ToolUse("bash", {"command": "echo warm"})), says("warm"))
        run_turn(client, session.id, "warm up")
        names = ("hands", "brain-1", "brain-2", "session", "gateway")
        before = {name: _peak(stack.pid(name)) for name in names}
        command = {"command": _OUTPUTS["one endless line"], "timeout_ms": 600_000}
        stack.model.script(tools(ToolUse("bash", command)), says("done"))
        events = run_turn(client, session.id, "go")
    result = next(event for event in events if event.type == "agent.tool_result")
    assert f"it has {BYTES} bytes" in result.content[0].text
    grown = {name: _peak(stack.pid(name)) - before[name] for name in names}
    assert all(size < FLAT for size in grown.values()), grown


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0
