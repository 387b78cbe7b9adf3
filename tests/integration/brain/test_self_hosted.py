"""Sessions whose tools run elsewhere: a brain, a session service and workers, over real gRPC."""

from __future__ import annotations

from drover.session.v1.lease_pb2 import AppendEvents
from services.brain.domain.calls import INTERRUPTED
from services.brain.domain.context import HISTORY_KEY
from services.brain.loop.sync_points import Point
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.agents import ask_for, custom_tool, judge_for
from tests.integration.brain.conftest import TOOLSET, Rig
from tests.integration.brain.test_judgement import verdicts
from tests.integration.brain.test_turns import END, IDLE, RUNNING, START

WAITS = ["user_message", *RUNNING, START]


class WorksAtOnce:
    """Has a worker answer while the brain looks into the log for the other call."""

    def __init__(self, session: FakeSession) -> None:
        self._session = session

    async def reach(self, point: Point) -> None:
        if point is Point.TOOLS_SENT:
            self._session.work(self._session.of("agent_tool_use")[1].id, "quick")


def awaited(session: FakeSession) -> list[str]:
    """The calls that the session waits for."""
    assert session.kinds[-3:] == IDLE
    return list(session.log[-1].session_status_idle.stop_reason.requires_action.event_ids)


async def test_a_workers_result_goes_to_the_model_and_nothing_to_the_hands(rig: Rig) -> None:
    session = rig.session(self_hosted=True)
    rig.model.say(tool("bash", {"command": "ls"}))
    rig.model.say(text("Done."))
    session.message("List the files")
    await rig.wake(session)
    assert session.kinds == [*WAITS, "agent_tool_use", END, *IDLE]
    [call] = awaited(session)
    session.work(call, "a b c")
    await rig.wake(session)
    assert session.kinds[-9:] == [
        "user_tool_result",
        *RUNNING,
        START,
        "agent_message",
        END,
        *IDLE,
    ]
    result = rig.model.requests[1]["messages"][-1]["content"][0]
    assert result["content"] == [{"type": "text", "text": "a b c"}]
    assert rig.hands.provisions == 0
    assert rig.hands.requests == []


async def test_answering_some_goes_idle_with_the_rest(rig: Rig) -> None:
    session = rig.session(TOOLSET, custom_tool("ask_user"), self_hosted=True)
    rig.model.say(tool("bash", {}, "toolu_1"), tool("ask_user", {}, "toolu_2"))
    rig.model.say(text("Done."))
    session.message("Work")
    brain = await rig.brain()
    await rig.wake(session, brain)
    worked, asked = awaited(session)
    session.work(worked, "done")
    await rig.wake(session, brain)
    assert awaited(session) == [asked]
    session.answer(asked, "yes")
    await rig.wake(session, brain)
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_a_call_is_a_workers_once_a_person_has_allowed_it(rig: Rig) -> None:
    session = rig.session(ask_for("bash"), self_hosted=True)
    rig.model.say(tool("bash", {}))
    rig.model.say(text("Done."))
    session.message("Work")
    brain = await rig.brain()
    await rig.wake(session, brain)
    [call] = awaited(session)
    session.confirm(call, allow=True)
    await rig.wake(session, brain)
    assert awaited(session) == [call]
    session.work(call, "worked")
    await rig.wake(session, brain)
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")
    assert rig.hands.requests == []


async def test_an_interrupt_settles_calls_so_that_workers_see_it(rig: Rig) -> None:
    session = rig.session(TOOLSET, custom_tool("ask_user"), self_hosted=True)
    rig.model.say(tool("bash", {}, "toolu_1"), tool("ask_user", {}, "toolu_2"))
    session.message("Work")
    brain = await rig.brain()
    await rig.wake(session, brain)
    session.interrupt()
    await rig.wake(session, brain)
    settled = ["user_tool_result", "user_custom_tool_result"]
    assert session.kinds[-6:] == [*settled, "user_interrupt", *IDLE]
    result = session.log[-6].user_tool_result
    assert result.is_error
    assert result.content[0].text.text == INTERRUPTED
    assert rig.hands.cancelled == []


async def test_a_worker_that_was_quicker_than_an_interrupt_keeps_its_result(rig: Rig) -> None:
    session = rig.session(self_hosted=True)
    rig.model.say(tool("bash", {}))
    rig.model.say(text("Better."))
    session.message("Work")
    await rig.wake(session)
    [call] = awaited(session)

    def work_first(append: AppendEvents) -> None:
        if any(event.HasField("user_tool_result") for event in append.events):
            session.before_append = None
            session.work(call, "just done")

    session.before_append = work_first
    session.interrupt()
    await rig.wake(session)
    [result] = session.of("user_tool_result")
    assert result.user_tool_result.content[0].text.text == "just done"
    session.message("Go on")
    await rig.wake(session)
    shown = rig.model.requests[1]["messages"][2]["content"][0]
    assert shown["content"] == [{"type": "text", "text": "just done"}]


async def test_a_result_that_comes_while_the_brain_still_works_is_taken(rig: Rig) -> None:
    session = rig.session(metadata={HISTORY_KEY: "on"}, self_hosted=True)
    rig.model.say(tool("session_history", {}, "toolu_1"), tool("bash", {}, "toolu_2"))
    rig.model.say(text("Done."))
    session.message("Work")
    await rig.wake(session, await rig.brain(points=WorksAtOnce(session)))
    assert len(session.of("session_status_idle")) == 1
    assert session.kinds[-4:] == [END, *IDLE]


async def test_a_call_is_judged_before_it_is_a_workers(rig: Rig) -> None:
    session = rig.session(judge_for("bash"), self_hosted=True)
    rig.model.say(tool("bash", {}, "toolu_1"), tool("bash", {}, "toolu_2"))
    rig.model.say(verdicts("allow", "deny"))
    session.message("Work")
    await rig.wake(session)
    allowed, denied = (event.id for event in session.of("agent_tool_use"))
    assert awaited(session) == [allowed]
    [refused] = session.of("agent_tool_result")
    assert refused.agent_tool_result.tool_use_id == denied
