"""What a sandbox uses is bounded (CASES S6, F7, F8)."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path

import pytest

from drover.hands.v1.hands_service_pb2 import VERDICT_OUTCOME_UNKNOWN
from tests.doubles.hands_stack import HandsStack, running, text


async def test_fork_bomb_is_bounded_and_ends_with_its_deadline(hands: HandsStack) -> None:
    await hands.bash("echo warm", session_id="sesn_2")
    started = time.monotonic()
    result = await hands.run(
        "bash", command="f() { f | f & }; f; while :; do :; done 2>/dev/null", timeout_ms=1500
    )
    assert time.monotonic() - started < 1.5 + 5
    assert result.is_error
    assert await hands.bash("echo fine") == "fine"
    assert await hands.bash("echo neighbour", session_id="sesn_2") == "neighbour"


async def test_processes_that_a_shell_left_do_not_keep_the_next_from_starting(
    hands: HandsStack,
) -> None:
    program = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    while True:\n"
        "        try:\n"
        "            os.fork()\n"
        "        except OSError:\n"
        "            time.sleep(0.01)\n"
    )
    await hands.run("write", file_path="fill.py", content=program)
    await hands.run("bash", command="exec python3 fill.py")
    for _ in range(3):
        assert await hands.bash("echo fine") == "fine"


async def test_threads_are_bounded(hands: HandsStack) -> None:
    await hands.run("write", file_path="t.py", content=(
        "import threading, time\n"
        "made = 0\n"
        "try:\n"
        "    while made < 5000:\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "        made += 1\n"
        "except RuntimeError:\n"
        "    pass\n"
        "print(made, flush=True)\n"
        "import os; os._exit(0)\n"
    ))  # fmt: skip
    assert int(await hands.bash("python3 t.py")) < 64


async def test_memory_is_bounded_and_the_shell_survives(hands: HandsStack) -> None:
    result = await hands.run("bash", command="x=1; python3 -c 'bytearray(1 << 30)'; echo x=$x")
    assert text(result).endswith("x=1")
    assert "Killed" in text(result) or "MemoryError" in text(result)


async def test_files_and_scratch_are_bounded(hands: HandsStack) -> None:
    assert (await hands.run("bash", command="head -c 100M /dev/zero >big")).is_error
    assert int(await hands.bash("stat -c %s big")) == 64 << 20
    assert (
        await hands.run(
            "bash", command="for i in {1..20}; do head -c 60M /dev/zero >/tmp/$i || exit 1; done"
        )
    ).is_error
    for place in ("/run/shell", "/run", "/dev/shm"):  # noqa: S108  # the sandbox's own
        filled = await hands.run(
            "bash", command=f"head -c 60M /dev/zero >{place}/x; r=$?; rm {place}/x; exit $r"
        )
        assert filled.is_error or place == "/dev/shm"  # noqa: S108  # which is larger
    assert await hands.bash("echo fine") == "fine"


async def test_core_files_are_not_written(hands: HandsStack) -> None:
    assert await hands.bash("ulimit -c; ulimit -Hc") == "0\n0"
    assert (await hands.run("bash", command="ulimit -c unlimited")).is_error


async def test_gibibyte_of_output_keeps_memory_flat(hands: HandsStack) -> None:
    await hands.bash("true")
    agent = max(hands.processes())
    before = _resident(os.getpid())
    result = await hands.run(
        "bash", command="head -c 1G /dev/zero | tr '\\0' x", timeout_ms=100_000
    )
    assert "it has 1073741824 bytes" in text(result)
    assert len(text(result)) < 12_000
    grown = _resident(os.getpid()) - before
    assert grown < 32 << 20
    peaks = [_peak(pid) for pid in hands.processes()]
    assert max(peaks) < 64 << 20, (agent, peaks)


async def test_agent_that_is_stopped_is_ended_within_a_second_of_the_deadline(
    hands: HandsStack,
) -> None:
    await hands.bash("true")
    processes = hands.processes()
    started = time.monotonic()
    result = await hands.run("bash", command="kill -STOP $PPID; sleep 1000", timeout_ms=300)
    assert time.monotonic() - started < 1.3
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert await hands.bash("echo fine") == "fine"
    assert not any(map(running, processes))


async def test_agent_that_is_replaced_cannot_hurt_the_host(hands: HandsStack) -> None:
    """A command that gets hold of the agent's descriptors can only end its own sandbox."""
    program = (
        "import os, signal\n"
        "for pid in (1, 2):\n"
        "    for fd in os.listdir(f'/proc/{pid}/fd'):\n"
        "        try:\n"
        "            os.write(os.open(f'/proc/{pid}/fd/{fd}', os.O_WRONLY), b'\\xff' * 64)\n"
        "        except OSError:\n"
        "            pass\n"
    )
    await hands.run("write", file_path="p.py", content=program)
    # What it could open is the pipe of its own output.
    assert (await hands.bash("python3 p.py; echo; echo done")).endswith("\ndone")
    assert (await hands.bash("echo fine")).endswith("fine")


async def test_endless_background_output_stops_nothing(hands: HandsStack) -> None:
    await hands.bash("yes &")
    shown = text(await hands.run("bash", command="echo front", timeout_ms=10_000))
    assert len(shown) < 12_000
    assert text(await hands.run("bash", restart=True)) == "bash session restarted"
    assert await hands.bash("echo fine") == "fine"


async def test_pattern_that_never_ends_is_ended(
    hands: HandsStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.domain.toolset.SEARCH_SECONDS", 0.5)
    await hands.run("write", file_path="x", content="a" * 40 + "b\n")
    started = time.monotonic()
    result = await hands.run("grep", pattern="(a+)+$")
    assert text(result) == "grep: timed out after 0.5s"
    assert time.monotonic() - started < 1.5


async def test_neighbours_keep_their_pace(hands: HandsStack) -> None:
    """A sandbox that burns all it may leaves the others within a bound of their own speed."""
    await hands.bash("for i in 1 2 3 4; do (while :; do :; done) & done")
    await hands.bash("true", session_id="sesn_2")
    times = []
    for _ in range(20):
        started = time.monotonic()
        await hands.bash("true", session_id="sesn_2")
        times.append(time.monotonic() - started)
    assert sorted(times)[10] < 0.5


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


async def test_many_sessions_at_once_stay_apart(hands: HandsStack) -> None:
    async def work(number: int) -> str:
        session = f"sesn_{number}"
        await hands.bash(f"echo {number} >n", session_id=session)
        return await hands.bash("cat n", session_id=session)

    results = await asyncio.gather(*map(work, range(8)))
    assert results == [str(number) for number in range(8)]
