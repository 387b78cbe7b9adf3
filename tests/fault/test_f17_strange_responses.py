"""F17: unknown blocks, tool input that is no JSON, tools never offered: told, and no crash."""

from __future__ import annotations

import json
from itertools import product

import pytest

from drover.agent.v1.tool_pb2 import AgentToolConfig, AgentToolset, Tool
from drover.event.v1.agent_event_pb2 import EVALUATED_PERMISSION_DENY
from services.brain.domain.decision import Limits
from tests.doubles.scripted_model import block, text, tool
from tests.integration.brain import conftest
from tests.integration.brain.agents import custom_tool
from tests.integration.brain.conftest import TOOLSET, Rig
from tests.integration.brain.test_turns import IDLE

rig = conftest.rig

BROKEN = ['{"command": "l', "[1]", '"ls"', "NaN", '{"a": NaN}', '{"a": 1} {"b": 2}', "\u0000"]


async def test_f17_unknown_blocks_of_the_model_are_left_out(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(block({"type": "hologram", "data": 1}), text("Hello."))
    session.message("Hi")
    await rig.wake(session)
    assert session.kinds[-3:] == IDLE
    assert session.of("agent_message")[0].agent_message.content[0].text.text == "Hello."


async def test_f17_a_response_of_unknown_blocks_alone_ends_the_turn_and_spoils_no_later_one(
    rig: Rig,
) -> None:
    session = rig.session()
    rig.model.say(block({"type": "hologram", "data": 1}), stop_reason="a_reason_of_a_later_kind")
    session.message("Hi")
    await rig.wake(session)
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")
    rig.model.say(text("Hello."))
    session.message("Still there?")
    await rig.wake(session)
    (asked,) = rig.model.requests[-1]["messages"]
    assert [part["text"] for part in asked["content"]] == ["Hi", "Still there?"]


@pytest.mark.parametrize(("name", "written"), list(product(["bash", "look_up"], BROKEN)))
async def test_f17_tool_input_that_is_no_json_object_is_told_to_the_model(
    rig: Rig, name: str, written: str
) -> None:
    session = rig.session(TOOLSET, custom_tool("look_up"))
    rig.model.say(tool(name, written))
    rig.model.say(text("Sorry."))
    session.message("Hi")
    await rig.wake(session)
    (use,) = session.of("agent_tool_use")
    assert use.agent_tool_use.input == "{}"
    assert use.agent_tool_use.malformed_input == written
    assert rig.hands.ran == []
    result = rig.model.requests[1]["messages"][-1]["content"][0]
    assert result["is_error"] is True
    assert "JSON object" in result["content"][0]["text"]
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


@pytest.mark.parametrize("stop_reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("written", ["", '{"command": "rm -rf b', '{"command": '])
async def test_f17_a_call_that_the_output_limit_cut_off_is_not_run(
    rig: Rig, stop_reason: str, written: str
) -> None:
    session = rig.session()
    rig.model.say(
        tool("bash", {"command": "ls"}, "toolu_1"),
        tool("bash", written, "toolu_2"),
        stop_reason=stop_reason,
    )
    rig.model.say(text("Sorry."))
    session.message("Hi")
    await rig.wake(session)
    assert [json.loads(request.input) for request in rig.hands.requests] == [{"command": "ls"}]
    whole, cut = (event.agent_tool_result for event in session.of("agent_tool_result"))
    if whole.is_error:
        whole, cut = cut, whole
    assert (whole.is_error, cut.is_error) == (False, True)
    assert "nothing was run" in cut.content[0].text.text


async def test_f17_a_call_without_any_input_is_run_where_nothing_was_cut_off(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(tool("bash", ""))
    rig.model.say(text("Done."))
    session.message("Hi")
    await rig.wake(session)
    assert [request.input for request in rig.hands.requests] == ["{}"]


async def test_f17_a_tool_that_is_disabled_or_unknown_is_refused_without_evaluation(
    rig: Rig,
) -> None:
    off = AgentToolset(configs=[AgentToolConfig(name="bash", enabled=False)])
    session = rig.session(Tool(agent_toolset=off))
    rig.model.say(tool("bash", {"command": "ls"}, "toolu_1"), tool("teleport", {}, "toolu_2"))
    rig.model.say(text("I see."))
    session.message("Hi")
    await rig.wake(session)
    uses = [event.agent_tool_use for event in session.of("agent_tool_use")]
    assert all(use.evaluated_permission == EVALUATED_PERMISSION_DENY for use in uses)
    assert not any(use.HasField("evaluation") for use in uses)
    told = [
        event.agent_tool_result.content[0].text.text for event in session.of("agent_tool_result")
    ]
    assert told[0] == "Permission to use bash has been denied."
    assert "no tool named teleport" in told[1]
    assert rig.hands.requests == []
    assert "bash" not in [offered["name"] for offered in rig.model.requests[0]["tools"]]


async def test_f17_sound_calls_beside_strange_ones_run_and_all_results_go_back_together(
    rig: Rig,
) -> None:
    session = rig.session()
    rig.model.say(
        block({"type": "hologram"}),
        tool("bash", "{", "toolu_1"),
        tool("bash", {"command": "ls"}, "toolu_2"),
        tool("teleport", {}, "toolu_3"),
    )
    rig.model.say(text("Done."))
    session.message("Hi")
    await rig.wake(session)
    assert len(rig.hands.ran) == 1
    results = rig.model.requests[1]["messages"][-1]["content"]
    assert [result["tool_use_id"] for result in results] == ["toolu_1", "toolu_2", "toolu_3"]
    assert [result.get("is_error", False) for result in results] == [True, False, True]


@pytest.mark.parametrize(
    "strange", [tool("bash", "{"), tool("teleport", {})], ids=["malformed", "unknown"]
)
async def test_f17_a_model_that_never_stops_being_strange_ends_at_the_limit(
    rig: Rig, strange: list[dict[str, object]]
) -> None:
    session = rig.session()
    for _ in range(5):
        rig.model.say(strange)
    session.message("Hi")
    await rig.wake(session, await rig.brain(limits=Limits(requests=4)))
    assert len(rig.model.bodies) == 4
    error = session.of("session_error")[-1].session_error.error
    assert error.HasField("tool_use_limit_reached_error")
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")
