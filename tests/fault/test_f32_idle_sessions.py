"""F32: ten thousand sessions at rest cost rows, and nothing else."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from chassis.clock import SystemClock
from services.session.domain.session import ThreadState
from tests.doubles import soak
from tests.doubles.messages_api import says, text
from tests.doubles.session_database import opened
from tests.doubles.session_rows import state
from tests.doubles.session_world import details
from tests.e2e.driving import new_session, send
from tests.e2e.stack import Stack, running_stack
from tests.fault.vitals import MIB, vitals

SESSIONS = 10_000
AT_ONCE = 500
MORE = 16 * MIB
"""Bytes that a process may take more than one of a stack without sessions: noise, and caches."""
QUICK = 5.0 if soak.share(1) >= 1 else 20.0
"""Seconds for a new session and its first turn, on a machine that is busy with other tests."""


async def fill(data: Path, count: int) -> None:
    """A session service's database with so many sessions that nobody has written to."""
    made = details()
    async with opened(f"sqlite:///{data}/session.db", SystemClock()) as store:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))

            def create(tx: object, numbers: range = numbers) -> None:
                for number in numbers:
                    one = state(f"sesn_{number:06}", created_at=number + 1)
                    thread = ThreadState(one.primary_thread_id, one.id, number + 1, number + 1)
                    tx.create(one, made, thread)  # type: ignore[attr-defined]

            await store.write(create)


@pytest.mark.timeout(soak.limit(120))
def test_idle_sessions_take_no_memory_and_a_new_one_is_as_quick(
    tmp_path: Path, own_stack: Stack
) -> None:
    count = int(soak.share(SESSIONS, least=2_500))
    asyncio.run(fill(tmp_path, count))
    turn(own_stack)
    without = {name: found.memory for name, found in vitals(own_stack).items()}
    with running_stack(tmp_path) as stack:
        turn(stack)
        # The list is read page by page, whatever there is.
        with stack.client() as client:
            assert sum(1 for _ in client.beta.sessions.list(limit=1000)) == count + 1
        began = time.monotonic()
        turn(stack)
        assert time.monotonic() - began < QUICK
        found = vitals(stack)
    grown = {name: one.memory - without[name] for name, one in found.items()}
    assert all(more < MORE for more in grown.values()), grown


def turn(stack: Stack) -> None:
    """A new session and its first turn."""
    stack.model.on(says("hello"), text("hello"))
    with stack.client() as client:
        session = new_session(client)
        send(client, session.id, "hello")
        stack.until_idle(client, session.id)
