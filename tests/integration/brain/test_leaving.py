"""A brain that is told to stop leaves its sessions to others, and nothing of a turn is lost."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from services.brain.loop.pool import BrainPool
from services.brain.loop.retry import RetryPolicy
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.agents import overloaded
from tests.integration.brain.conftest import Rig


async def left(session: FakeSession, woken: asyncio.Task[int]) -> None:
    """Waits until the brain has left the session, whose lease is then taken away."""
    with pytest.raises(DroverError) as refusal:
        await woken
    assert refusal.value.reason is Reason.UNAVAILABLE
    session.revoke()


def wake(rig: Rig, session: FakeSession, brain: BrainPool) -> asyncio.Task[int]:
    return asyncio.create_task(rig.wake(session, brain))


async def test_request_under_way_is_finished_and_its_calls_are_left(rig: Rig) -> None:
    session = rig.session()
    session.message("go")
    reply = rig.model.say(tool("bash", {"command": "one"}))
    reply.hold = 2
    rig.model.say(text("Done."))
    brain = await rig.brain()
    woken = wake(rig, session, brain)
    await reply.reached.wait()

    rig.workers[0].leave()
    draining = asyncio.create_task(brain.drain(10))
    await asyncio.sleep(0)
    assert not woken.done()
    reply.release.set()
    await draining
    await left(session, woken)
    assert rig.hands.ran == []

    await rig.wake(session)
    assert rig.model.cut_off == 0
    assert len(rig.model.requests) == 2  # nothing was asked twice
    assert len(rig.hands.ran) == 1
    assert not any(event.span_model_request_end.is_error for event in session.log)


async def test_last_answer_ends_its_turn(rig: Rig) -> None:
    session = rig.session()
    session.message("go")
    reply = rig.model.say(text("Done."))
    reply.hold = 2
    brain = await rig.brain()
    woken = wake(rig, session, brain)
    await reply.reached.wait()
    rig.workers[0].leave()
    reply.release.set()
    await woken
    assert not session.held
    assert session.kinds[-1] == "session_status_idle"


async def test_calls_under_way_are_left_at_once_and_answer_the_next_brain(rig: Rig) -> None:
    session = rig.session()
    session.message("go")
    gate = rig.hands.hold("slow")
    rig.model.say(tool("bash", {"command": "slow"}))
    rig.model.say(text("Done."))
    woken = wake(rig, session, await rig.brain())
    await rig.hands.started()

    rig.workers[0].leave()
    await left(session, woken)

    again = wake(rig, session, await rig.brain())
    gate.set()
    await again
    assert len(rig.hands.ran) == 1
    assert [event.agent_tool_result.is_error for event in session.of("agent_tool_result")] == [
        False
    ]


async def test_model_that_is_waited_for_is_left_to_the_next_brain(rig: Rig) -> None:
    session = rig.session()
    session.message("go")
    rig.model.fail(overloaded(retry_after=600.0))
    woken = wake(rig, session, await rig.brain(retry=RetryPolicy()))
    await session.until(lambda: "session_error" in session.kinds)
    rig.workers[0].leave()
    await left(session, woken)


async def test_brain_that_leaves_takes_no_session_any_more(rig: Rig) -> None:
    session = rig.session()
    session.message("go")
    brain = await rig.brain()
    rig.workers[0].leave()
    with pytest.raises(DroverError, match="stops"):
        await rig.wake(session, brain)
    assert session.opens == []
