"""S10: whatever a session has started ends with it, within two seconds."""

from __future__ import annotations

import asyncio
import time

import pytest

from drover.hands.v1.hands_service_pb2 import VERDICT_OUTCOME_UNKNOWN
from tests.doubles import soak
from tests.doubles.hands_stack import HandsStack, Sandboxes, running
from tests.doubles.hands_waiting import eventually

_SECONDS = 2.0 if soak.share(1) >= 1 else 30.0  # where other tests take the processor too
# Hides in each way that daemons have: forked twice, in a session of its own, deaf to signals,
# stopped, and restarted by another when it is killed.
HIDE = """\
import os, signal, time
def deaf():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
def daemon(work):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for fd in range(3):
        os.close(fd)
    deaf()
    work()
    os._exit(0)
def sleep():
    time.sleep(1000)
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
def again():
    while True:
        pid = os.fork()
        if pid == 0:
            time.sleep(0.01)
            os._exit(0)
        os.waitpid(pid, 0)
for work in (sleep, stop, again):
    daemon(work)
"""


@pytest.fixture
async def infested(hands: HandsStack) -> HandsStack:
    await hands.run("write", file_path="hide.py", content=HIDE)
    await hands.bash(
        "python3 hide.py; nohup sleep 1000 >/dev/null 2>&1 & (setsid sleep 1000 &); "
        "trap '' TERM HUP INT; (echo 'sleep 1000' | at now; crontab -l) 2>/dev/null; :"
    )
    return hands


async def test_release_leaves_no_process(infested: HandsStack) -> None:
    processes = infested.processes()
    started = time.monotonic()
    await infested.executor.release("sesn_1")
    await eventually(lambda: not any(map(running, processes)))
    assert time.monotonic() - started < _SECONDS


async def test_stop_of_the_service_leaves_no_process(
    sandboxes: Sandboxes, infested: HandsStack
) -> None:
    processes = infested.processes()
    started = time.monotonic()
    await infested.pool.close()
    await eventually(lambda: not any(map(running, processes)))
    assert time.monotonic() - started < _SECONDS
    assert sandboxes.kind == infested.backend.name


async def test_call_that_is_cancelled_takes_its_daemons_along(hands: HandsStack) -> None:
    await hands.run("write", file_path="hide.py", content=HIDE)
    asked = asyncio.create_task(
        hands.run("bash", call_id="c1", command="python3 hide.py; touch hidden; sleep 1000")
    )
    volume = hands.pool._workspaces.find("sesn_1")
    assert volume is not None
    await eventually((volume.root / "workspace" / "hidden").exists)
    started = time.monotonic()
    await hands.executor.cancel("sesn_1", 1, ["c1"])
    await asked
    # What has been killed is there until the kernel has cleared it away.
    await hands.bash("while pgrep -f '^python3 hide'; do :; done >/dev/null", timeout_ms=30_000)
    assert time.monotonic() - started < _SECONDS


async def test_sandbox_that_kills_its_own_agent_is_gone_as_a_whole(infested: HandsStack) -> None:
    processes = infested.processes()
    started = time.monotonic()
    result = await infested.run("bash", command="kill -9 $PPID; sleep 1000")
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    await eventually(lambda: not any(map(running, processes)))
    assert time.monotonic() - started < _SECONDS + 1  # the call's own way included
