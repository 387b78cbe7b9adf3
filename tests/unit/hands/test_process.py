"""Processes of the host: ending one with what it has started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from services.hands.backends.process import children, kill_with_children
from tests.doubles.hands_waiting import eventually


@pytest.fixture
def forking() -> Iterator[subprocess.Popen[bytes]]:
    """A process that goes on starting others, in a group of their own."""
    script = "for _ in {1..300}; do sleep 1000 & done; wait"
    with subprocess.Popen(["bash", "-c", script], start_new_session=True) as process:
        yield process
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)


async def test_no_child_is_left_of_a_process_that_is_killed_as_it_forks(
    forking: subprocess.Popen[bytes],
) -> None:
    await eventually(lambda: len(children(forking.pid)) > 2)
    await asyncio.to_thread(kill_with_children, forking.pid)
    assert forking.wait() == -signal.SIGKILL
    await eventually(lambda: not _group_is_there(forking.pid))


def test_process_that_has_ended_is_killed_too(forking: subprocess.Popen[bytes]) -> None:
    os.killpg(forking.pid, signal.SIGKILL)
    os.waitid(os.P_PID, forking.pid, os.WEXITED | os.WNOWAIT)
    kill_with_children(forking.pid)
    assert forking.wait() == -signal.SIGKILL


def _group_is_there(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True
