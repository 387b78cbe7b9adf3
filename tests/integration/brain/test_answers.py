"""Calls that somebody else has to answer: confirmations and custom tools (EVENTS §10)."""

from __future__ import annotations

import asyncio

from drover.session.v1.lease_pb2 import AppendEvents
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.agents import ask_for, custom_tool
from tests.integration.brain.conftest import TOOLSET, Rig
from tests.integration.brain.test_turns import IDLE, RUNNING


def awaited(session: FakeSession) -> list[str]:
    idle = session.log[-1].session_status_idle
    return list(idle.stop_reason.requires_action.event_ids)


async def test_call_that_asks_runs_once_it_is_allowed(rig: Rig) -> None:
    session = rig.session(ask_for("bash"))
    rig.model.say(tool("bash", {"command": "rm"}))
    rig.model.say(text("Removed."))
    session.message("Remove")
    brain = await rig.brain()
    await rig.wake(session, brain)
    (use,) = session.of("agent_tool_use")
    assert use.agent_tool_use.evaluation.HasField("always_ask")
    assert awaited(session) == [use.id]
    assert rig.hands.provisions == 0
    session.confirm(use.id, allow=True)
    at = len(session.log)
    await rig.wake(session, await rig.brain())
    assert session.kinds[at : at + 4] == ["user_tool_confirmation", *RUNNING, "agent_tool_result"]
    assert rig.hands.ran == [use.id]
    assert session.kinds[-3:] == IDLE
    assert awaited(session) == []


async def test_denial_reaches_the_model_with_its_message(rig: Rig) -> None:
    session = rig.session(ask_for("bash"))
    rig.model.say(tool("bash", {"command": "rm"}))
    rig.model.say(text("As you wish."))
    session.message("Remove")
    brain = await rig.brain()
    await rig.wake(session, brain)
    session.confirm(awaited(session)[0], allow=False, message="Not on a Friday.")
    await rig.wake(session, brain)
    result = rig.model.requests[1]["messages"][-1]["content"][0]
    assert result["is_error"] is True
    assert result["content"][0]["text"] == (
        "Permission to use bash has been denied. Not on a Friday."
    )
    assert rig.hands.ran == []


async def test_a_denial_is_recorded_once_every_call_is_answered_and_the_session_runs(
    rig: Rig,
) -> None:
    session = rig.session(ask_for("bash"))
    rig.model.say(tool("bash", {"command": "a"}), tool("bash", {"command": "b"}))
    rig.model.say(text("As you wish."))
    session.message("Do both")
    brain = await rig.brain()
    await rig.wake(session, brain)
    first, second = awaited(session)
    at = len(session.log)
    session.confirm(first, allow=False, message="")
    await rig.wake(session, brain)
    assert session.kinds[at:] == ["user_tool_confirmation", *IDLE]
    assert awaited(session) == [second]
    at = len(session.log)
    session.confirm(second, allow=True)
    await rig.wake(session, await rig.brain())
    begun = ["user_tool_confirmation", *RUNNING, "agent_tool_result", "agent_tool_result"]
    assert session.kinds[at : at + 5] == begun
    assert rig.hands.ran == [second]


async def test_custom_call_waits_for_the_client_and_goes_on_with_its_result(rig: Rig) -> None:
    session = rig.session(custom_tool("ask_user"))
    rig.model.say(tool("ask_user", {"question": "why"}))
    rig.model.say(text("Because."))
    session.message("Ask")
    brain = await rig.brain()
    await rig.wake(session, brain)
    (use,) = session.of("agent_custom_tool_use")
    assert awaited(session) == [use.id]
    session.answer(use.id, "just so")
    await rig.wake(session, brain)
    assert session.kinds.count("session_status_running") == 2
    result = rig.model.requests[1]["messages"][-1]["content"][0]
    assert result["content"] == [{"type": "text", "text": "just so"}]
    offered = rig.model.bodies[0]
    assert b'"input_schema":{"type": "object",  "properties": {}}' in offered


async def test_one_idle_event_lists_every_kind_of_call_that_waits(rig: Rig) -> None:
    session = rig.session(ask_for("bash"), custom_tool("ask_user"))
    rig.model.say(
        tool("bash", {"command": "rm"}, "toolu_1"),
        tool("ask_user", {}, "toolu_2"),
        tool("glob", {"pattern": "*"}, "toolu_3"),
    )
    session.message("Go")
    await rig.wake(session)
    asked, custom = session.of("agent_tool_use")[0], session.of("agent_custom_tool_use")[0]
    assert awaited(session) == [asked.id, custom.id]
    # The call that needs nobody has run already.
    assert len(session.of("agent_tool_result")) == 1


async def test_answering_some_idles_again_with_the_rest_and_runs_nothing(rig: Rig) -> None:
    session = rig.session(ask_for("bash"), custom_tool("ask_user"))
    rig.model.say(tool("bash", {"command": "rm"}, "toolu_1"), tool("ask_user", {}, "toolu_2"))
    rig.model.say(text("Done."))
    session.message("Go")
    brain = await rig.brain()
    await rig.wake(session, brain)
    asked, custom = awaited(session)
    session.confirm(asked, allow=True)
    await rig.wake(session, brain)
    assert session.kinds[-4:] == ["user_tool_confirmation", *IDLE]
    assert awaited(session) == [custom]
    assert rig.hands.ran == []
    session.answer(custom, "yes")
    await rig.wake(session, await rig.brain())
    assert rig.hands.ran == [asked]
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_confirmation_that_comes_while_tools_run_is_taken_at_once(rig: Rig) -> None:
    session = rig.session(ask_for("bash"))
    gate = rig.hands.hold("slow")
    rig.model.say(
        tool("glob", {"pattern": "*", "command": "slow"}, "toolu_1"),
        tool("bash", {"command": "rm"}, "toolu_2"),
    )
    rig.model.say(text("Done."))
    session.message("Go")
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session))
        await rig.hands.started(1)
        session.confirm(session.of("agent_tool_use")[1].id, allow=True)
        await rig.hands.started(2)
        gate.set()
        await woken
    assert session.kinds.count("session_status_idle") == 1
    assert session.kinds.count("agent_tool_result") == 2


async def test_custom_result_that_comes_while_tools_run_needs_no_idle(rig: Rig) -> None:
    session = rig.session(TOOLSET, custom_tool("ask_user"))
    gate = rig.hands.hold("slow")
    rig.model.say(tool("bash", {"command": "slow"}, "toolu_1"), tool("ask_user", {}, "toolu_2"))
    rig.model.say(text("Done."))
    session.message("Go")
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session))
        await rig.hands.started(1)
        session.answer(session.of("agent_custom_tool_use")[0].id, "yes")
        gate.set()
        await woken
    assert session.kinds.count("session_status_idle") == 1
    sent = rig.model.requests[1]["messages"][-1]["content"]
    assert [result["tool_use_id"] for result in sent] == ["toolu_1", "toolu_2"]


async def test_last_answer_that_comes_as_the_session_pauses_again_is_not_left_behind(
    rig: Rig,
) -> None:
    session = rig.session(custom_tool("ask_user"))
    rig.model.say(tool("ask_user", {}, "toolu_1"), tool("ask_user", {}, "toolu_2"))
    rig.model.say(text("Thanks."))
    session.message("Ask twice")
    brain = await rig.brain()
    await rig.wake(session, brain)
    first, second = awaited(session)

    def answer_second(append: AppendEvents) -> None:
        if append.release:
            session.before_append = None
            session.answer(second, "two")

    session.before_append = answer_second
    session.answer(first, "one")
    await rig.wake(session, brain)
    assert session.kinds.count("session_status_idle") == 2
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")
