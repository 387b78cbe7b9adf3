"""Sessions whose agents have MCP servers: tools listed, offered, called (SEMANTICS §5)."""

from __future__ import annotations

import asyncio
import json

import pytest

from drover.agent.v1.tool_pb2 import PERMISSION_POLICY_TYPE_AUTO, McpToolConfig
from drover.event.v1.agent_event_pb2 import EVALUATED_PERMISSION_ASK, EVALUATED_PERMISSION_DENY
from drover.event.v1.content_pb2 import ContentBlock
from drover.event.v1.session_event_pb2 import RepositoryError, SessionError
from drover.hands.v1 import hands_service_pb2 as pb
from drover.session.v1.lease_pb2 import AppendEvents
from services.brain.clients import hands as hands_client
from services.brain.harness.minimal import MinimalHarness
from tests.doubles.hands_service import result
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.conftest import TOOLSET, Rig
from tests.integration.brain.test_answers import awaited
from tests.integration.brain.test_harness import SETUP
from tests.integration.brain.test_judgement import to_judge, verdicts
from tests.integration.brain.test_turns import END, IDLE, RUNNING, START
from tests.unit.brain.mcp_agents import ALLOW, answer, config, down, toolset
from tests.unit.brain.mcp_agents import tool as listed

FILES = answer("files", listed("find", "Finds files."), listed("drop"))


def errors(session: FakeSession) -> list[str]:
    return [event.session_error.error.message for event in session.of("session_error")]


def offered(rig: Rig, number: int = -1) -> list[str]:
    return [one["name"] for one in rig.model.requests[number].get("tools", ())]


async def test_tools_are_listed_and_an_allowed_call_is_run_and_answered(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files", policy=ALLOW))
    rig.hands.servers["files"] = FILES
    rig.model.say(tool("find", {"name": "a.txt"}))
    rig.model.say(text("Found."))
    session.message("Find it")
    await rig.wake(session)
    assert session.kinds == [
        "user_message",
        *RUNNING,
        START,
        "agent_mcp_tool_use",
        END,
        "agent_mcp_tool_result",
        START,
        "agent_message",
        END,
        *IDLE,
    ]
    [use] = session.of("agent_mcp_tool_use")
    assert use.agent_mcp_tool_use.mcp_server_name == "files"
    assert use.agent_mcp_tool_use.evaluation.HasField("always_allow")
    [request] = rig.hands.requests
    assert (request.mcp_server_name, request.name) == ("files", "find")
    assert (request.call_id, request.input) == (use.id, '{"name": "a.txt"}')
    assert rig.hands.listings == [["files"]]
    assert rig.hands.provisions == 0
    shown = rig.model.requests[0]["tools"][-2:]
    assert shown[0] == {
        "name": "find",
        "description": "Finds files.",
        "input_schema": {"type": "object"},
    }
    last = rig.model.requests[1]["messages"][-1]["content"][0]
    assert last["content"] == [{"type": "text", "text": "ran find"}]


async def test_sessions_without_servers_ask_nobody_and_append_as_ever(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(text("Hello."))
    session.message("Hi")
    await rig.wake(session)
    assert rig.hands.listings == []
    assert len(session.appends) == 2


async def test_servers_are_asked_once_each_time_the_session_begins_to_run(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files"))
    rig.hands.servers["files"] = FILES
    rig.model.say(tool("bash", {"command": "ls"}))
    brain = await rig.brain()
    for turn in range(2):
        session.message("Go")
        await rig.wake(session, brain)
        assert len(rig.hands.listings) == turn + 1
    # What has not changed is not written a second time.
    starts = [event.span_model_request_start for event in session.of(START)]
    assert [one.HasField("mcp") for one in starts] == [True, False, True]
    assert [len(one.mcp.servers) for one in starts] == [1, 0, 0]
    cold = await rig.brain()
    session.message("Once more")
    await rig.wake(session, cold)
    assert offered(rig, -1) == offered(rig, 0)


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


async def test_the_session_goes_on_without_a_server_and_asks_again_when_it_next_runs(
    rig: Rig,
) -> None:
    session = rig.session(TOOLSET, toolset("files", policy=ALLOW), toolset("mail", policy=ALLOW))
    rig.hands.servers |= {"files": FILES, "mail": down("mail", "mail is down")}
    brain = await rig.brain()
    session.message("Go")
    await rig.wake(session, brain)
    assert errors(session) == ["mail is down"]
    [error] = session.of("session_error")
    assert error.session_error.error.mcp_connection_failed_error.mcp_server_name == "mail"
    assert offered(rig)[-2:] == ["find", "drop"]
    assert session.kinds[-3:] == IDLE
    rig.hands.servers["mail"] = answer("mail", listed("send"))
    session.message("Go on")
    await rig.wake(session, brain)
    assert errors(session) == ["mail is down"]
    assert offered(rig)[-3:] == ["find", "drop", "send"]
    rig.hands.servers["mail"] = down("mail", "mail is down again")
    rig.model.say(tool("send", {}))
    session.message("Send it")
    await rig.wake(session, brain)
    [use] = session.of("agent_mcp_tool_use")
    assert use.agent_mcp_tool_use.evaluated_permission == EVALUATED_PERMISSION_DENY
    said = session.of("agent_mcp_tool_result")[0].agent_mcp_tool_result.content[0].text.text
    assert said == "The MCP server mail cannot be reached at present. Nothing was run."
    assert rig.hands.ran == []


async def test_hands_that_cannot_list_leave_the_session_without_the_servers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands_client, "_LIST_DEADLINE", 0.2)
    rig.hands.may_list.clear()
    session = rig.session(TOOLSET, toolset("files"))
    session.message("Go")
    await rig.wake(session)
    assert errors(session) == ["The MCP server files could not be asked for its tools."]
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_an_interrupt_does_not_wait_for_the_servers(rig: Rig) -> None:
    rig.hands.may_list.clear()
    session = rig.session(TOOLSET, toolset("files"))
    session.message("Go")
    woken = asyncio.create_task(rig.wake(session))
    async with asyncio.timeout(10):
        while not rig.hands.listings:
            rig.hands.changed.clear()
            await rig.hands.changed.wait()
    session.interrupt()
    await woken
    assert session.kinds == ["user_message", *RUNNING, "user_interrupt", *IDLE]
    assert rig.model.bodies == []


async def test_a_brain_that_dies_while_it_asks_is_replaced_by_one_that_asks(rig: Rig) -> None:
    rig.hands.may_list.clear()
    rig.hands.servers["files"] = FILES
    session = rig.session(TOOLSET, toolset("files"))
    session.message("Go")
    pool = await rig.brain()
    woken = asyncio.create_task(rig.wake(session, pool))
    async with asyncio.timeout(10):
        while not rig.hands.listings:
            rig.hands.changed.clear()
            await rig.hands.changed.wait()
    session.revoke()
    await asyncio.wait([woken])
    rig.hands.may_list.set()
    await rig.wake(session)
    assert rig.hands.listings == [["files"], ["files"]]
    assert offered(rig)[-2:] == ["find", "drop"]
    assert session.kinds.count("session_status_running") == 1


async def test_servers_are_asked_beside_the_calls_that_a_person_allowed(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files"))
    rig.hands.servers["files"] = FILES
    rig.model.say(tool("find", {"command": "slow"}))
    session.message("Go")
    await rig.wake(session)
    gate = rig.hands.hold("slow")
    session.confirm(awaited(session)[0], allow=True)
    woken = asyncio.create_task(rig.wake(session))
    await rig.hands.started()
    async with asyncio.timeout(10):
        while len(rig.hands.listings) < 2:
            rig.hands.changed.clear()
            await rig.hands.changed.wait()
    gate.set()
    await woken
    assert session.kinds[-3:] == IDLE


async def test_a_changed_tool_is_told_of_and_asked_about_again(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files", policy=ALLOW))
    rig.hands.servers["files"] = FILES
    brain = await rig.brain()
    session.message("Go")
    await rig.wake(session, brain)
    rig.hands.servers["files"] = answer("files", listed("find", "Now different."), listed("drop"))
    rig.model.say(tool("find", {}))
    session.message("Go on")
    await rig.wake(session, brain)
    [said] = errors(session)
    assert "find has another description" in said
    [use] = session.of("agent_mcp_tool_use")
    assert awaited(session) == [use.id]
    session.confirm(use.id, allow=True)
    await rig.wake(session, await rig.brain())
    assert rig.hands.ran == [use.id]
    rig.model.say(tool("find", {}, "toolu_2"))
    session.message("And again")
    await rig.wake(session, await rig.brain())
    assert len(rig.hands.ran) == 2
    assert len(errors(session)) == 1


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


async def test_an_agent_whose_servers_were_changed_asks_the_new_ones(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files", policy=ALLOW))
    rig.hands.servers |= {"files": FILES, "mail": answer("mail", listed("send"))}
    session.message("Go")
    await rig.wake(session)
    agent = session.session.agent
    del agent.tools[1:], agent.mcp_servers[:]
    agent.tools.append(toolset("mail", config("send", ALLOW)))
    agent.mcp_servers.add(name="mail", url="https://mail.example.com/mcp")
    session.change(agent)
    rig.model.say(tool("find", {}, "toolu_1"), tool("send", {}, "toolu_2"))
    session.message("Go on")
    await rig.wake(session, await rig.brain())
    assert rig.hands.listings[-1] == ["mail"]
    assert "find" not in offered(rig, 1)
    find, send = session.of("agent_mcp_tool_use")
    assert find.agent_mcp_tool_use.evaluated_permission == EVALUATED_PERMISSION_DENY
    assert rig.hands.ran == [send.id]


async def test_the_minimal_harness_offers_them_too(rig: Rig) -> None:
    session = rig.session(TOOLSET, toolset("files"), metadata={"drover.harness": "minimal"})
    rig.hands.servers["files"] = FILES
    session.message("Go")
    await rig.wake(session, await rig.brain(others=[MinimalHarness(SETUP)]))
    assert offered(rig)[-2:] == ["find", "drop"]


async def test_listing_waits_for_nothing_that_the_message_waits_for(rig: Rig) -> None:
    """The message is taken while the servers are asked: neither comes behind the other."""
    rig.hands.may_list.clear()
    rig.hands.servers["files"] = FILES
    session = rig.session(TOOLSET, toolset("files"))
    session.message("Go")
    woken = asyncio.create_task(rig.wake(session))
    await session.until(lambda: "session_status_running" in session.kinds)
    rig.hands.may_list.set()
    await woken
    assert session.kinds[-3:] == IDLE
    taken = [append for append in session.appends if isinstance(append, AppendEvents)]
    assert len(taken) <= 3
