"""Interrupts, at every place where one can come (EVENTS §9)."""

from __future__ import annotations

import asyncio

from drover.session.v1.lease_pb2 import AppendEvents
from services.brain.domain.calls import INTERRUPTED
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import Reply, response, text, tool
from tests.integration.brain.agents import custom_tool, overloaded
from tests.integration.brain.conftest import Rig
from tests.integration.brain.test_turns import END, IDLE, RUNNING, START


def ends_interrupted(session: FakeSession) -> bool:
    idle = session.log[-1].session_status_idle
    return session.kinds[-3:] == IDLE and idle.stop_reason.HasField("end_turn")


async def test_interrupt_stops_the_model_and_shows_before_idle(rig: Rig) -> None:
    session = rig.session()
    reply = rig.model.add(Reply(response(text("Once upon a time", pieces=4)), hold=3))
    session.message("Tell")
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session))
        await reply.reached.wait()
        session.interrupt()
        await woken
    assert session.kinds == ["user_message", *RUNNING, START, END, "user_interrupt", *IDLE]
    end = session.of(END)[0].span_model_request_end
    assert end.is_error
    assert end.model_usage.input_tokens == 10
    assert rig.model.cut_off == 1
    assert ends_interrupted(session)


async def test_interrupt_stops_running_tools_and_gives_every_call_an_error(rig: Rig) -> None:
    session = rig.session()
    rig.hands.hold("sleep")
    rig.model.say(
        tool("bash", {"command": "sleep"}, "toolu_1"), tool("bash", {"command": "ls"}, "toolu_2")
    )
    session.message("Wait")
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session))
        await session.until(lambda: "agent_tool_result" in session.kinds)
        session.interrupt()
        await woken
    assert session.kinds[-6:] == [
        "agent_tool_result",
        "agent_tool_result",
        "user_interrupt",
        *IDLE,
    ]
    first, second = (event.agent_tool_result for event in session.of("agent_tool_result"))
    assert first.content[0].text.text == "ran ls"
    assert second.is_error
    assert second.content[0].text.text == INTERRUPTED
    assert rig.hands.cancelled == [second.tool_use_id]
    assert ends_interrupted(session)


async def test_message_sent_with_an_interrupt_begins_the_next_turn(rig: Rig) -> None:
    session = rig.session()
    reply = rig.model.add(Reply(response(text("Once upon")), hold=2))
    rig.model.say(text("Short."))
    session.message("Tell")
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session))
        await reply.reached.wait()
        session.interrupt()
        session.message("Shorter")
        await woken
    turn = [START, END, "user_interrupt", *IDLE]
    assert session.kinds == [
        "user_message",
        *RUNNING,
        *turn,
        "user_message",
        *RUNNING,
        START,
        "agent_message",
        END,
        *IDLE,
    ]
    assert rig.model.requests[1]["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Tell"},
                {"type": "text", "text": "Shorter", "cache_control": {"type": "ephemeral"}},
            ],
        }
    ]


async def test_interrupt_of_an_idle_session_shows_and_idles_again(rig: Rig) -> None:
    session = rig.session()
    session.interrupt()
    await rig.wake(session)
    assert session.kinds == ["user_interrupt", *IDLE]


async def test_interrupt_of_a_session_that_waits_closes_its_calls_without_the_model(
    rig: Rig,
) -> None:
    session = rig.session(custom_tool("ask_user"))
    rig.model.say(tool("ask_user", {}))
    session.message("Ask")
    brain = await rig.brain()
    await rig.wake(session, brain)
    assert session.log[-1].session_status_idle.stop_reason.HasField("requires_action")
    session.interrupt()
    await rig.wake(session, brain)
    assert session.kinds[-5:] == ["agent_tool_result", "user_interrupt", *IDLE]
    assert len(rig.model.bodies) == 1
    assert ends_interrupted(session)


async def test_answer_that_comes_before_the_interrupts_error_is_the_one_that_counts(
    rig: Rig,
) -> None:
    session = rig.session(custom_tool("ask_user"))
    rig.model.say(tool("ask_user", {}))
    session.message("Ask")
    brain = await rig.brain()
    await rig.wake(session, brain)
    (use,) = session.of("agent_custom_tool_use")

    def answer_first(append: AppendEvents) -> None:
        if any(event.HasField("agent_tool_result") for event in append.events):
            session.before_append = None
            session.answer(use.id, "42")

    session.before_append = answer_first
    session.interrupt()
    await rig.wake(session, brain)
    assert session.kinds[-5:] == ["user_custom_tool_result", "user_interrupt", *IDLE]
    rig.model.say(text("42, then."))
    session.message("Go on")
    await rig.wake(session, brain)
    fresh = await rig.brain()
    rig.model.say(text("Indeed."))
    session.message("And on")
    await rig.wake(session, fresh)
    cached, projected = (request["messages"][2]["content"] for request in rig.model.requests[1:])
    assert cached[0]["content"] == [{"type": "text", "text": "42"}]
    assert cached[0] == projected[0]


async def test_interrupt_while_waiting_to_try_again_ends_the_wait(rig: Rig) -> None:
    session = rig.session()
    rig.model.fail(overloaded(retry_after=1000.0))
    session.message("Hi")
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session))
        await session.until(lambda: "session_status_rescheduled" in session.kinds)
        session.interrupt()
        await woken
    assert session.kinds[-4:] == ["user_interrupt", *IDLE]
    assert ends_interrupted(session)
