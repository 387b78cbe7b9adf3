"""F7: a sandbox hangs for ever, forks, ignores every signal: its deadline ends it all the same."""

from __future__ import annotations

import time

import pytest

from drover.hands.v1.hands_service_pb2 import VERDICT_OUTCOME_UNKNOWN
from tests.doubles import soak
from tests.doubles.hands_stack import HandsStack, Sandboxes, running, text
from tests.doubles.hands_waiting import eventually

_DEADLINE = 0.3
_LATE = 1.0 if soak.share(1) >= 1 else 20.0
"""Seconds past it: more where other tests take the processor as well."""
_DEAF = (
    "import signal, time\n"
    "for number in range(1, 65):\n"
    "    try:\n"
    "        signal.signal(number, signal.SIG_IGN)\n"
    "    except (OSError, ValueError):\n"
    "        pass\n"
    "while True:\n"
    "    time.sleep(1)\n"
)
_HANGS = {
    "sleeps": "sleep 1000",
    "spins": "while :; do :; done",
    "ignores signals": "trap '' TERM INT HUP QUIT; python3 /workspace/deaf.py",
    "forks": "f() { f | f & }; f; while :; do :; done",
    "has left its group": "setsid python3 /workspace/deaf.py & setsid setsid sleep 1000 & wait",
    "stops its shell": "kill -STOP $$; sleep 1000",
    # Made anew: of one that a dead sandbox has left, a kernel in user space reads the end at once.
    "waits for input": "rm -f fifo; mkfifo fifo; cat <>fifo",
}


async def test_call_ends_within_a_second_of_its_deadline_and_takes_all_along(
    sandboxes: Sandboxes,
    hands: HandsStack,
) -> None:
    await hands.run("write", file_path="/workspace/deaf.py", content=_DEAF)
    for name, command in _HANGS.items():
        idle, before = hands.processes(), await _within(hands)
        started = time.monotonic()
        result = await hands.run("bash", command=command, timeout_ms=int(_DEADLINE * 1000))
        assert time.monotonic() - started < _DEADLINE + _LATE, name
        assert result.is_error, name
        assert "timed out" in text(result) or result.verdict == VERDICT_OUTCOME_UNKNOWN, name
        # What has been killed is there until the kernel has cleared it away.
        gone = "while pgrep sleep || pgrep -f deaf.py; do :; done >/dev/null"
        await hands.bash(gone, timeout_ms=60_000)
        assert await _within(hands) <= before + 1, name
        if not sandboxes.runtime:  # another's own processes are not those of the sandbox
            assert len(hands.processes()) <= len(idle) + 1, name


async def _within(hands: HandsStack) -> int:
    """How many processes the sandbox sees, which is all that it has."""
    return int(await hands.bash("set -- /proc/[0-9]*; echo $#"))


async def test_agent_that_is_stopped_is_ended_within_a_second_of_the_deadline(
    hands: HandsStack,
) -> None:
    await hands.bash("true")
    processes = hands.processes()
    started = time.monotonic()
    result = await hands.run("bash", command="kill -STOP $PPID; sleep 1000", timeout_ms=1000)
    assert time.monotonic() - started < 1.0 + _LATE
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    await eventually(lambda: not any(map(running, processes)), _LATE + 1)
    assert (await hands.bash("echo fine")).startswith("fine")


async def test_search_that_never_ends_is_ended(
    hands: HandsStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.domain.toolset.SEARCH_SECONDS", _DEADLINE)
    await hands.run("write", file_path="x", content="a" * 40 + "b\n")
    started = time.monotonic()
    result = await hands.run("grep", pattern="(a+)+$")
    assert time.monotonic() - started < _DEADLINE + _LATE
    assert text(result) == f"grep: timed out after {_DEADLINE}s"
    assert await hands.bash("echo fine") == "fine"
