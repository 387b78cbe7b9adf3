"""Calls of MCP servers' tools, which have the fate of all calls (SEMANTICS §3, §5)."""

from __future__ import annotations

import asyncio
import json

import pytest

from drover.agent.v1.tool_pb2 import PERMISSION_POLICY_TYPE_AUTO, McpToolConfig
from drover.event.v1.agent_event_pb2 import EVALUATED_PERMISSION_ASK, EVALUATED_PERMISSION_DENY
from drover.event.v1.content_pb2 import ContentBlock
from drover.event.v1.session_event_pb2 import RepositoryError, SessionError
from drover.hands.v1 import hands_service_pb2 as pb
from services.brain.harness.clearing import ClearingPolicy
from services.brain.harness.standard import StandardHarness
from services.brain.loop.sync_points import Point
from tests.doubles.hands_service import result
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.conftest import TOOLSET, Rig
from tests.integration.brain.test_answers import awaited
from tests.integration.brain.test_judgement import to_judge, verdicts
from tests.integration.brain.test_mcp import FILES, errors, offered
from tests.integration.brain.test_recovery import kill_at
from tests.integration.brain.test_turns import IDLE
from tests.unit.brain.mcp_agents import ALLOW, toolset


async def test_the_toolset_asks_by_default_and_a_denial_reaches_the_model(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files"))
    rig.hands.servers["files"] = FILES
    rig.model.say(tool("find", {}, "toolu_1"), tool("drop", {}, "toolu_2"))
    rig.model.say(text("As you wish."))
    session.message("Go")
    await rig.wake(session)
    find, drop = session.of("agent_mcp_tool_use")
    assert find.agent_mcp_tool_use.evaluated_permission == EVALUATED_PERMISSION_ASK
    assert awaited(session) == [find.id, drop.id]
    session.confirm(find.id, allow=True)
    session.confirm(drop.id, allow=False, message="Not that one.")
    await rig.wake(session)
    assert rig.hands.ran == [find.id]
    told = rig.model.requests[1]["messages"][-1]["content"]
    assert told[0]["content"][0]["text"] == "ran find"
    assert told[1]["content"][0]["text"] == (
        "Permission to use drop has been denied. Not that one."
    )
    assert len(session.of("agent_mcp_tool_result")) == 2


async def test_calls_under_auto_are_judged_by_server_and_name(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files", policy=PERMISSION_POLICY_TYPE_AUTO))
    rig.hands.servers["files"] = FILES
    rig.model.say(tool("find", {}, "toolu_1"), tool("drop", {}, "toolu_2"))
    rig.model.say(verdicts("allow", "deny"))
    session.message("Go")
    await rig.wake(session)
    [asked] = to_judge(rig)
    shown = json.loads(asked["messages"][0]["content"][0]["text"])["calls"]
    assert shown[0] == {"call": 1, "mcp_server": "files", "tool": "find", "input": "{}"}
    assert "Finds files." not in json.dumps(asked)
    find, drop = session.of("agent_mcp_tool_use")
    assert rig.hands.ran == [find.id]
    assert drop.agent_mcp_tool_use.evaluated_permission == EVALUATED_PERMISSION_DENY
    assert drop.agent_mcp_tool_use.evaluation.auto.evaluated_permission.HasField("deny")


async def test_a_tool_that_is_not_enabled_is_neither_offered_nor_run(rig: Rig) -> None:
    no_drop = McpToolConfig(name="drop", enabled=False)
    session = rig.session(TOOLSET, toolset("files", no_drop, policy=ALLOW))
    rig.hands.servers["files"] = FILES
    rig.model.say(tool("drop", {}))
    session.message("Go")
    await rig.wake(session)
    assert "drop" not in offered(rig, 0)
    assert rig.hands.ran == []
    [use] = session.of("agent_tool_use")
    assert not use.agent_tool_use.HasField("evaluation")


async def test_a_broken_call_is_of_unknown_outcome_and_is_not_run_again(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files", policy=ALLOW))
    rig.hands.servers["files"] = FILES

    async def broken(_: pb.ExecuteRequest) -> pb.ExecuteResponse:
        return result("The connection broke.", verdict=pb.VERDICT_OUTCOME_UNKNOWN)

    rig.hands.behaviours["drop"] = broken
    rig.model.say(tool("drop", {}))
    rig.model.say(text("I look first."))
    session.message("Drop it")
    await rig.wake(session)
    [event] = session.of("agent_mcp_tool_result")
    outcome = event.agent_mcp_tool_result
    assert outcome.is_error
    assert "outcome of this call is unknown" in outcome.content[0].text.text
    assert outcome.content[1].text.text == "The connection broke."
    assert len(rig.hands.ran) == 1


async def test_pictures_that_a_tool_answers_are_shown_to_the_model(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files", policy=ALLOW))
    rig.hands.servers["files"] = FILES
    dot = ContentBlock()
    dot.image.source.base64.media_type, dot.image.source.base64.data = "image/png", "iVBORw0KGgo="

    async def picture(_: pb.ExecuteRequest) -> pb.ExecuteResponse:
        return pb.ExecuteResponse(content=[dot], verdict=pb.VERDICT_COMPLETED)

    rig.hands.behaviours["find"] = picture
    rig.model.say(tool("find", {}))
    session.message("Show it")
    await rig.wake(session)
    [shown] = rig.model.requests[1]["messages"][-1]["content"][0]["content"]
    assert shown["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


async def test_an_interrupted_call_is_cancelled_and_closed_as_its_servers(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files", policy=ALLOW))
    rig.hands.servers["files"] = FILES
    rig.hands.hold("slow")
    rig.model.say(tool("find", {"command": "slow"}))
    session.message("Go")
    woken = asyncio.create_task(rig.wake(session))
    await rig.hands.started()
    session.interrupt()
    await woken
    assert rig.hands.cancelled == rig.hands.ran
    [closed] = session.of("agent_mcp_tool_result")
    assert closed.agent_mcp_tool_result.mcp_tool_use_id == rig.hands.ran[0]
    assert closed.agent_mcp_tool_result.is_error


async def test_what_goes_wrong_beside_is_told_once_while_the_session_runs(rig: Rig) -> None:
    session = rig.session()
    lost = SessionError(message="it is gone", repository_not_found_error=RepositoryError())
    rig.hands.provision_errors = [lost]

    async def troubled(request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        answered = result(f"ran {request.name}")
        answered.errors.append(lost)
        return answered

    rig.hands.behaviours |= {"ls": troubled, "pwd": troubled}
    rig.model.say(tool("bash", {"command": "ls"}, "a"), tool("bash", {"command": "pwd"}, "b"))
    session.message("Go")
    await rig.wake(session)
    assert errors(session) == ["it is gone"]
    [told] = session.of("session_error")
    assert told.session_error.error.HasField("repository_not_found_error")
    rig.model.say(tool("bash", {"command": "ls"}))
    session.message("Again")
    await rig.wake(session, await rig.brain())
    assert errors(session) == ["it is gone", "it is gone"]


KILLED_AT = (
    Point.INPUT_TAKEN,
    Point.BEFORE_REQUEST,
    Point.RESPONSE_COMPLETE,
    Point.RESPONSE_DURABLE,
    Point.TOOLS_SENT,
    Point.TOOL_FINISHED,
    Point.BEFORE_IDLE,
)


@pytest.mark.parametrize("point", KILLED_AT)
async def test_a_killed_brain_is_replaced_and_no_call_is_made_twice(rig: Rig, point: Point) -> None:
    def say(body: bytes) -> None:
        done = b'"tool_result"' in body
        rig.model.say(text("Done.") if done else tool("find", {"command": "once"}))

    rig.model.before_each = say
    rig.hands.servers["files"] = FILES
    session = rig.session(TOOLSET, toolset("files", policy=ALLOW))
    session.message("Go")
    assert await kill_at(rig, session, point, 1)
    if session.held:
        session.revoke()
    await rig.wake(session)
    assert len(rig.hands.ran) == 1
    [result] = session.of("agent_mcp_tool_result")
    assert result.agent_mcp_tool_result.mcp_tool_use_id == rig.hands.ran[0]
    assert session.kinds[-3:] == IDLE
    # However often they were asked, the model was always told the same.
    assert len({json.dumps(request["tools"]) for request in rig.model.requests}) == 1


async def test_servers_stay_with_the_brain_where_workers_run_the_other_tools(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files", policy=ALLOW), self_hosted=True)
    rig.hands.servers["files"] = FILES
    rig.model.say(tool("find", {}))
    session.message("Go")
    await rig.wake(session)
    [use] = session.of("agent_mcp_tool_use")
    assert rig.hands.ran == [use.id]
    assert rig.hands.requests[0].environment.HasField("self_hosted")
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_results_of_servers_are_cleared_like_any_and_can_be_looked_up(rig: Rig) -> None:
    session = rig.session(
        TOOLSET, toolset("files", policy=ALLOW), metadata={"drover.session_history": "on"}
    )
    rig.hands.servers["files"] = FILES

    async def long(_: pb.ExecuteRequest) -> pb.ExecuteResponse:
        return result("x" * 40_000)

    rig.hands.behaviours["find"] = long
    for number in range(4):
        usage = {"input_tokens": 10_000 * (number + 1)}
        rig.model.say(tool("find", {}, f"toolu_{number}"), usage=usage)
    harness = StandardHarness(
        windows=lambda _: 200_000, clearing=ClearingPolicy(begin=0.1, least=0.01, keep=1)
    )
    session.message("Go")
    await rig.wake(session, await rig.brain(harness=harness))
    last = json.dumps(rig.model.requests[-1]["messages"])
    assert "was cleared to make room" in last
    first = session.of("agent_mcp_tool_result")[0]
    rig.model.say(tool("session_history", {"event_id": first.id}, "toolu_back"))
    session.message("Look back")
    await rig.wake(session)
    looked = session.of("agent_tool_result")[-1].agent_tool_result.content[0].text.text
    assert '"type": "agent.mcp_tool_result"' in looked
    assert "xxxx" in looked
