"""One verdict per call: what the hands say, and what the model is told of it."""

from __future__ import annotations

import pytest

from chassis.clock import SystemClock
from chassis.errors import DroverError, Reason
from drover.event.v1.content_pb2 import ContentBlock, ImageBlock, TextBlock
from drover.hands.v1 import hands_service_pb2 as pb
from services.brain.clients.hands import UNKNOWN_OUTCOME, GrpcHands, WarmHands
from services.brain.domain.calls import INTERRUPTED, Answerer, Call
from tests.doubles.hands_service import result
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.conftest import Rig


class JumpingClock(SystemClock):
    """Monotonic time that goes on by so many seconds whenever it is asked."""

    def __init__(self, step: float) -> None:
        self._step = step
        self._time = 0.0

    def monotonic(self) -> float:
        self._time += self._step
        return self._time


def hands(rig: Rig, step: float = 0.0) -> GrpcHands:
    clock = JumpingClock(step)
    warm = WarmHands(clock)
    return GrpcHands(
        rig.hands_stub, clock, warm, session_id="sesn_1", generation=1, environment=None
    )


def bash(command: str = "ls") -> Call:
    return Call("sevt_1", "bash", f'{{"command": "{command}"}}', "toolu_1", Answerer.HANDS)


def says(rig: Rig, response: pb.ExecuteResponse) -> None:
    async def behave(_request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        return response

    rig.hands.behaviours["ls"] = behave


async def test_hands_that_are_away_are_asked_again_under_the_same_id(rig: Rig) -> None:
    rig.hands.unavailable = 3
    outcome = await hands(rig).execute(bash())
    assert not outcome.is_error
    assert {request.call_id for request in rig.hands.requests} == {"sevt_1"}
    assert len(rig.hands.requests) == 4
    assert rig.hands.ran == ["sevt_1"]


async def test_hands_that_stay_away_leave_the_outcome_unknown(rig: Rig) -> None:
    rig.hands.unavailable = 1000
    outcome = await hands(rig, step=40.0).execute(bash())
    assert outcome.is_error
    assert outcome.content[0].text.text == UNKNOWN_OUTCOME


async def test_outcome_that_the_hands_do_not_know_is_told_with_what_they_saw(rig: Rig) -> None:
    says(rig, result("half a line", verdict=pb.VERDICT_OUTCOME_UNKNOWN))
    outcome = await hands(rig).execute(bash())
    assert outcome.is_error
    assert [part.text.text for part in outcome.content] == [UNKNOWN_OUTCOME, "half a line"]
    assert "not run again" in UNKNOWN_OUTCOME


async def test_call_that_could_not_start_is_an_error_with_its_reason(rig: Rig) -> None:
    says(rig, result("no sandbox to be had", verdict=pb.VERDICT_NOT_RUN))
    outcome = await hands(rig).execute(bash())
    assert outcome.is_error
    assert outcome.content[0].text.text == "no sandbox to be had"


async def test_call_that_was_cancelled_says_so(rig: Rig) -> None:
    fresh = hands(rig)
    await fresh.cancel(["sevt_1"])
    outcome = await fresh.execute(bash())
    assert outcome.cancelled
    assert outcome.content[0].text.text == INTERRUPTED
    assert rig.hands.ran == []


async def test_call_that_the_hands_refuse_is_told_to_the_model(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(tool("bash", {"command": "x" * 10, "timeout_ms": 5}))
    rig.model.say(text("I see."))

    async def refuse(_request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        raise DroverError(Reason.INVALID_ARGUMENT, "input.command: too odd")

    rig.hands.behaviours["x" * 10] = refuse
    session.message("Go")
    await rig.wake(session)
    (told,) = session.of("agent_tool_result")
    assert told.agent_tool_result.is_error
    assert "input.command: too odd" in told.agent_tool_result.content[0].text.text


async def test_older_generation_is_never_retried(rig: Rig) -> None:
    rig.hands.generation = 5
    with pytest.raises(DroverError) as lost:
        await hands(rig).execute(bash())
    assert lost.value.reason is Reason.LEASE_LOST
    with pytest.raises(DroverError):
        await hands(rig).cancel(["sevt_1"])


async def test_sandbox_that_has_just_answered_is_not_asked_for(rig: Rig) -> None:
    session = rig.session()
    brain = await rig.brain()
    for _ in range(2):
        rig.model.say(tool("bash", {"command": "ls"}))
        rig.model.say(text("Done."))
        session.message("Go")
        await rig.wake(session, brain)
    assert rig.hands.provisions == 1
    clock = JumpingClock(0.0)
    warm = WarmHands(clock, entries=2)
    for name in ("a", "b", "c"):
        warm.note(name)
    assert [warm.knows(name) for name in ("a", "b", "c")] == [False, True, True]
    clock._time = 61.0
    assert not warm.knows("c")


async def test_failed_provision_is_left_for_the_call_to_meet(rig: Rig) -> None:
    rig.hands.generation = 5
    await hands(rig).provision()


async def test_result_that_the_log_would_refuse_is_replaced(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(tool("bash", {"command": "odd"}))

    async def odd(_request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        blocks = [ContentBlock(text=TextBlock(text="")), ContentBlock(image=ImageBlock())]
        return pb.ExecuteResponse(content=blocks, verdict=pb.VERDICT_COMPLETED)

    rig.hands.behaviours["odd"] = odd
    session.message("Go")
    await rig.wake(session)
    (told,) = session.of("agent_tool_result")
    assert told.agent_tool_result.is_error
    assert "cannot be shown" in told.agent_tool_result.content[0].text.text
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_result_without_output_is_told_as_such(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(tool("bash", {"command": "quiet"}))

    async def quiet(_request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        return result("")

    rig.hands.behaviours["quiet"] = quiet
    session.message("Go")
    await rig.wake(session)
    assert list(session.of("agent_tool_result")[0].agent_tool_result.content) == []
    sent = rig.model.requests[1]["messages"][-1]["content"][0]
    assert sent["content"] == [{"type": "text", "text": "(no output)"}]


async def test_skills_that_were_found_are_told_with_whichever_result(rig: Rig) -> None:
    for verdict in (pb.VERDICT_CANCELLED, pb.VERDICT_OUTCOME_UNKNOWN, pb.VERDICT_NOT_RUN):
        answer = result("x", verdict=verdict)
        answer.found_skills.add(name="lint", description="Checks.", path="/workspace/x/SKILL.md")
        says(rig, answer)
        call = Call(f"sevt_{verdict}", "bash", '{"command": "ls"}', "toolu_1", Answerer.HANDS)
        outcome = await hands(rig).execute(call)
        assert "- lint: Checks." in outcome.content[-1].text.text
