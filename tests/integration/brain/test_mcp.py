"""Sessions whose agents have MCP servers: tools listed, offered, called (SEMANTICS §5)."""

from __future__ import annotations

import asyncio

import pytest

from drover.event.v1.agent_event_pb2 import EVALUATED_PERMISSION_DENY
from drover.session.v1.lease_pb2 import AppendEvents
from services.brain.clients import hands as hands_client
from services.brain.harness.minimal import MinimalHarness
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.conftest import TOOLSET, Rig
from tests.integration.brain.test_answers import awaited
from tests.integration.brain.test_harness import SETUP
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
    await rig.hands.asked_to_list()
    # The servers are asked beside that: an interrupt that came before would go first.
    await session.until(lambda: "session_status_running" in session.kinds)
    session.interrupt()
    await woken
    assert session.kinds == ["user_message", *RUNNING, "user_interrupt", *IDLE]
    assert len(rig.hands.listings) == 1
    assert rig.model.bodies == []


async def test_a_brain_that_dies_while_it_asks_is_replaced_by_one_that_asks(rig: Rig) -> None:
    rig.hands.may_list.clear()
    rig.hands.servers["files"] = FILES
    session = rig.session(TOOLSET, toolset("files"))
    session.message("Go")
    pool = await rig.brain()
    woken = asyncio.create_task(rig.wake(session, pool))
    await rig.hands.asked_to_list()
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
    await rig.hands.asked_to_list(2)
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
