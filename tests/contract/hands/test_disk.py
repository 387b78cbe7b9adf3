"""A sandbox that fills the disk is ended (CASES S6)."""

from __future__ import annotations

import asyncio
import time

import pytest

from chassis.clock import SystemClock
from drover.hands.v1.hands_service_pb2 import VERDICT_COMPLETED, VERDICT_OUTCOME_UNKNOWN
from services.hands.disk import DiskLimits, DiskWatcher
from services.hands.domain.limits import MIB
from tests.doubles.hands_stack import HandsStack, text

# Files of 20 MiB each, within what one file may have.
FILL = "touch begun; for i in {1..200}; do head -c 20M /dev/zero >f$i || break; done; sleep 1000"


def watcher(hands: HandsStack, *, free: int = 0) -> DiskWatcher:
    limits = DiskLimits(workspace_bytes=100 * MIB, free_bytes=free)
    return DiskWatcher(hands.pool, hands.pool._workspaces, limits, SystemClock())


async def test_workspace_that_outgrows_its_limit_ends_its_sandbox_and_no_other(
    hands: HandsStack,
) -> None:
    await hands.bash("true")
    await hands.bash("x=1", session_id="sesn_2")
    watch = asyncio.create_task(watcher(hands).run())
    started = time.monotonic()
    result = await hands.run("bash", command=FILL)
    assert time.monotonic() - started < 30
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert "its files take more of the disk than they may" in text(result)
    assert await hands.bash("echo $x", session_id="sesn_2") == "1"
    # The agent can tidy up: what is there is not held against the next sandbox.
    tidied = await hands.run("bash", command="sleep 1.2; test -e f1 && rm f*; sleep 1.2")
    assert tidied.verdict == VERDICT_COMPLETED
    again = await hands.run("bash", command=FILL)
    assert "its files take more of the disk than they may" in text(again)
    # What is too large already may not grow.
    more = "for i in {1..5}; do head -c 20M /dev/zero >g$i; done; sleep 1000"
    assert "its files take more" in text(await hands.run("bash", command=more))
    watch.cancel()
    await asyncio.wait([watch])


async def test_disk_that_is_almost_full_ends_who_writes_to_it(hands: HandsStack) -> None:
    await hands.bash("true")
    await hands.bash("true", session_id="sesn_2")
    watch = watcher(hands, free=1 << 60)
    await watch.look()
    await hands.bash("head -c 1M /dev/zero >f")
    await watch.look()
    live = hands.pool.live()
    assert set(live) == {"sesn_2"}


@pytest.mark.parametrize("sessions", [3])
async def test_idle_sandboxes_are_left_alone(hands: HandsStack, sessions: int) -> None:
    for number in range(sessions):
        await hands.bash("true", session_id=f"sesn_{number}")
    watch = watcher(hands)
    for _ in range(3):
        await watch.look()
    assert len(hands.pool.live()) == sessions
