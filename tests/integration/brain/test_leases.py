"""The lease: connections that break, generations that pass on, brains that are full."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1.lease_pb2 import AppendEvents
from tests.doubles.scripted_model import Reply, response, text, tool
from tests.integration.brain.agents import custom_tool
from tests.integration.brain.conftest import Rig

APPENDS_OF_A_TOOL_TURN = 4


async def uninterrupted(rig: Rig) -> list[str]:
    session = rig.session()
    script(rig)
    session.message("Go")
    await rig.wake(session)
    return session.kinds


def script(rig: Rig) -> None:
    rig.model.replies.clear()
    rig.model.say(text("Let me see."), tool("bash", {"command": "ls"}))
    rig.model.say(text("Done."))


@pytest.mark.parametrize("when", ["break_before", "break_after"])
@pytest.mark.parametrize("nth", range(APPENDS_OF_A_TOOL_TURN))
async def test_connection_that_breaks_at_any_append_loses_and_doubles_nothing(
    rig: Rig, when: str, nth: int
) -> None:
    expected = await uninterrupted(rig)
    session = rig.session()
    script(rig)
    seen = iter(range(100))
    setattr(session, when, lambda _append: next(seen) == nth)
    session.message("Go")
    if when == "break_after" and nth == APPENDS_OF_A_TOOL_TURN - 1:
        # The release was kept: there is no lease to take up again, and nothing left to do.
        with pytest.raises(DroverError) as lost:
            await rig.wake(session)
        assert lost.value.reason is Reason.LEASE_LOST
    else:
        await rig.wake(session)
        assert session.opens[1].generation == 1
    assert session.kinds == expected
    assert len({event.id for event in session.log}) == len(session.log)
    assert len(rig.hands.ran) == 2  # one in each session
    assert not session.held


@pytest.mark.parametrize("reason", [Reason.RESOURCE_EXHAUSTED, Reason.UNAVAILABLE])
async def test_append_for_which_there_is_no_room_just_now_is_sent_again_under_the_same_lease(
    rig: Rig, reason: Reason
) -> None:
    expected = await uninterrupted(rig)
    session = rig.session()
    script(rig)
    refusals = 5

    def refuse(append: AppendEvents) -> None:
        nonlocal refusals
        if any(event.HasField("agent_message") for event in append.events) and refusals:
            refusals -= 1
            raise DroverError(reason, "no room", retry_after=0.01)

    session.before_append = refuse
    session.message("Go")
    await rig.wake(session)
    assert refusals == 0
    assert session.kinds == expected
    assert session.generation == 1
    assert len(rig.hands.ran) == 2  # one in each session


async def test_brain_goes_on_with_its_tool_while_the_session_service_is_away(rig: Rig) -> None:
    session = rig.session()
    gate = rig.hands.hold("slow")
    rig.model.say(tool("bash", {"command": "slow"}))
    rig.model.say(text("Done."))
    session.message("Go")
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session))
        await rig.hands.started()
        session.break_connection()
        await session.until(lambda: len(session.opens) == 2)
        gate.set()
        await woken
    assert session.kinds.count("agent_tool_result") == 1
    assert session.generation == 1
    assert len(rig.hands.ran) == 1


async def test_input_that_comes_while_disconnected_is_seen_on_return(rig: Rig) -> None:
    session = rig.session()
    rig.hands.hold("slow")
    rig.model.say(tool("bash", {"command": "slow"}))
    session.message("Go")
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session))
        await rig.hands.started()
        session.break_connection()
        session.connection = None
        session.interrupt()
        await woken
    assert session.log[-4].HasField("user_interrupt")


async def test_release_refused_for_an_answer_that_came_while_disconnected_is_no_error(
    rig: Rig,
) -> None:
    session = rig.session(custom_tool("ask_user"))
    rig.model.say(tool("ask_user", {}, "toolu_1"), tool("ask_user", {}, "toolu_2"))
    rig.model.say(text("Thanks."))
    session.message("Ask twice")
    brain = await rig.brain()
    await rig.wake(session, brain)
    idle = session.log[-1].session_status_idle
    first, second = idle.stop_reason.requires_action.event_ids

    def answer_second(append: AppendEvents) -> bool:
        if append.release:
            session.connection = None  # nobody can be told of it
            session.answer(second, "two")
        return append.release

    session.break_before = answer_second
    session.answer(first, "one")
    await rig.wake(session, brain)
    assert session.kinds.count("session_status_idle") == 2
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_brain_that_lost_its_lease_stops_and_emits_nothing(rig: Rig) -> None:
    session = rig.session()
    reply = rig.model.add(Reply(response(text("Too late.")), hold=2))
    session.message("Go")
    woken = asyncio.create_task(rig.wake(session))
    await reply.reached.wait()
    kinds = session.kinds
    session.revoke()
    with pytest.raises(DroverError) as lost:
        await woken
    assert lost.value.reason is Reason.LEASE_LOST
    assert session.kinds == kinds
    assert rig.model.cut_off == 1


async def test_hands_that_know_a_newer_generation_stop_the_brain(rig: Rig) -> None:
    session = rig.session()
    rig.hands.generation = 7
    rig.model.say(tool("bash", {"command": "ls"}))
    session.message("Go")
    with pytest.raises(DroverError) as lost:
        await rig.wake(session)
    assert lost.value.reason is Reason.LEASE_LOST
    assert "agent_tool_result" not in session.kinds


async def test_lease_that_another_brain_holds_is_passed_through(rig: Rig) -> None:
    session = rig.session()
    session.held, session.generation = True, 3
    with pytest.raises(DroverError) as held:
        await rig.wake(session)
    assert held.value.reason is Reason.LEASE_HELD


async def test_unknown_session_is_passed_through(rig: Rig) -> None:
    brain = await rig.brain()
    with pytest.raises(DroverError) as missing:
        await brain.wake("sesn_nowhere")
    assert missing.value.reason is Reason.NOT_FOUND


async def test_full_brain_says_so_and_has_room_again_later(rig: Rig) -> None:
    brain = await rig.brain(max_sessions=1)
    busy, other = rig.session(), rig.session()
    reply = rig.model.add(Reply(response(text("Slow.")), hold=2))
    busy.message("Go")
    woken = asyncio.create_task(rig.wake(busy, brain))
    await reply.reached.wait()
    with pytest.raises(DroverError) as full:
        await brain.wake(other.session.id)
    assert full.value.reason is Reason.RESOURCE_EXHAUSTED
    reply.release.set()
    await woken
    other.message("Go")
    await rig.wake(other, brain)


async def test_worker_outlives_the_call_that_woke_it_and_the_next_waits_for_it(rig: Rig) -> None:
    brain = await rig.brain()
    session = rig.session()
    reply = rig.model.add(Reply(response(text("Slow.")), hold=2))
    session.message("Go")
    first = asyncio.create_task(brain.wake(session.session.id))
    await reply.reached.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(brain.wake(session.session.id))
    reply.release.set()
    assert await second == 2
    assert session.kinds.count("session_status_idle") == 1


async def test_brain_that_is_stopped_as_its_connection_breaks_does_stop(rig: Rig) -> None:
    session = rig.session()
    reply = rig.model.add(Reply(response(text("Slow.")), hold=2))
    session.message("Go")
    brain = await rig.brain()
    woken = asyncio.create_task(brain.wake(session.session.id))
    await reply.reached.wait()
    session.break_connection()
    # Both at once, whichever is seen first: a task group may keep a cancellation to itself.
    async with asyncio.timeout(30):
        await brain.__aexit__(None, None, None)
        with pytest.raises((asyncio.CancelledError, DroverError)):
            await woken


@pytest.mark.parametrize("when", ["break_before", "break_after"])
async def test_input_taken_along_with_the_lease_is_taken_once(rig: Rig, when: str) -> None:
    session = rig.session()
    brain = await rig.brain()
    rig.model.say(text("One."))
    session.message("one")
    await rig.wake(session, brain)
    setattr(session, when, lambda append: not append.events)
    rig.model.say(text("Two."))
    rig.model.say(text("Three."))
    session.message("two")
    session.message("three")
    await rig.wake(session, brain)
    asked = [request["messages"][-1]["content"][-1]["text"] for request in rig.model.requests]
    assert asked == ["one", "two", "three"]
    assert session.kinds.count("session_status_running") == 2
    # The first append of the warm brain went out with its request for the lease.
    first = next(append for append in session.appends if not append.events)
    assert first.request_id == 1
