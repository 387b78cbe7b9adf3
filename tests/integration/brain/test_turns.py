"""Whole turns: the order of their events and what the model is sent."""

from __future__ import annotations

import asyncio

from drover.session.v1.lease_pb2 import AppendEvents
from tests.doubles.scripted_model import text, thinking, tool
from tests.integration.brain.conftest import Rig

RUNNING = ["session_status_running", "session_thread_status_running"]
IDLE = ["session_thread_status_idle", "session_usage", "session_status_idle"]
START, END = "span_model_request_start", "span_model_request_end"


async def test_message_is_answered_in_the_order_of_the_contract(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(text("Hello."))
    session.message("Hi")
    await rig.wake(session)
    assert session.kinds == ["user_message", *RUNNING, START, "agent_message", END, *IDLE]
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")
    assert not session.held


async def test_tool_turn_takes_four_appends(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(thinking("hm"), text("Let me see."), tool("bash", {"command": "ls"}))
    rig.model.say(text("Done."))
    session.message("List the files")
    await rig.wake(session)
    assert session.kinds == [
        "user_message",
        *RUNNING,
        START,
        "agent_thinking",
        "agent_message",
        "agent_tool_use",
        END,
        "agent_tool_result",
        START,
        "agent_message",
        END,
        *IDLE,
    ]
    assert len(session.appends) == 4
    assert rig.hands.provisions == 1
    messages = rig.model.requests[1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"][0] == {
        "type": "thinking",
        "thinking": "hm",
        "signature": "sig",
    }
    assert messages[2]["content"][0]["content"] == [{"type": "text", "text": "ran ls"}]


async def test_calls_of_one_response_run_beside_each_other(rig: Rig) -> None:
    session = rig.session()
    first, second = rig.hands.hold("one"), rig.hands.hold("two")
    rig.model.say(
        tool("bash", {"command": "one"}, "toolu_1"), tool("bash", {"command": "two"}, "toolu_2")
    )
    rig.model.say(text("Both done."))
    session.message("Do both")
    brain = await rig.brain()
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session, brain))
        await rig.hands.started(2)
        second.set()
        await session.until(lambda: "agent_tool_result" in session.kinds)
        first.set()
        await woken
    uses, results = session.of("agent_tool_use"), session.of("agent_tool_result")
    assert [result.agent_tool_result.tool_use_id for result in results] == [
        uses[1].id,
        uses[0].id,
    ]
    sent = rig.model.requests[1]["messages"][-1]["content"]
    assert [result["tool_use_id"] for result in sent] == ["toolu_1", "toolu_2"]


async def test_messages_are_processed_one_after_the_other_without_idling_between(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(text("First answer."))
    rig.model.say(text("Second answer."))
    session.message("one")
    session.message("two")
    await rig.wake(session)
    turn = ["user_message", START, "agent_message", END]
    assert session.kinds == [turn[0], *RUNNING, *turn[1:], *turn, *IDLE]
    assert [message["role"] for message in rig.model.requests[1]["messages"]] == [
        "user",
        "assistant",
        "user",
    ]


async def test_message_that_comes_as_the_turn_ends_is_not_left_behind(rig: Rig) -> None:
    session = rig.session()

    def slip_in(append: AppendEvents) -> None:
        if append.release and len(rig.model.bodies) == 1:
            session.before_append = None
            session.message("wait, one more")

    session.before_append = slip_in
    rig.model.say(text("First answer."))
    rig.model.say(text("Second answer."))
    session.message("one")
    await rig.wake(session)
    assert session.kinds.count("agent_message") == 2
    assert session.kinds.count("session_status_idle") == 1
    assert session.kinds[-3:] == IDLE


async def test_previews_join_to_a_prefix_of_the_final_text(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(
        thinking("hm"), text("Hello wörld, here I am.", pieces=5), text("More.", pieces=2)
    )
    session.message("Hi")
    await rig.wake(session)
    starts = [p.event_start.event for p in session.previews if p.HasField("event_start")]
    (thought,), (message,) = session.of("agent_thinking"), session.of("agent_message")
    assert [(start.type, start.id) for start in starts] == [
        ("agent.thinking", thought.id),
        ("agent.message", message.id),
    ]
    joined = {0: "", 1: ""}
    for preview in session.previews:
        if preview.HasField("event_delta"):
            assert preview.event_delta.event_id == message.id
            joined[preview.event_delta.delta.index] += preview.event_delta.delta.content.text
    assert joined[0] == message.agent_message.content[0].text.text == "Hello wörld, here I am."
    assert joined[1] == message.agent_message.content[1].text.text == "More."


async def test_session_without_tool_calls_never_gets_a_sandbox(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(text("No need."))
    session.message("Hi")
    await rig.wake(session)
    assert rig.hands.provisions == 0


async def test_usage_is_summed_over_requests_and_published_before_idle(rig: Rig) -> None:
    session = rig.session()
    creation = {"ephemeral_1h_input_tokens": 30, "ephemeral_5m_input_tokens": 70}
    usage = {
        "input_tokens": 7,
        "cache_read_input_tokens": 11,
        "cache_creation_input_tokens": 100,
        "cache_creation": creation,
    }
    rig.model.say(tool("bash", {"command": "ls"}), usage=usage)
    rig.model.say(text("Done."), usage=usage)
    session.message("Hi")
    await rig.wake(session)
    (published,) = session.of("session_usage")
    snapshot = published.session_usage.usage
    assert (snapshot.input_tokens, snapshot.output_tokens) == (14, 10)
    assert snapshot.cache_read_input_tokens == 22
    assert snapshot.cache_creation.ephemeral_1h_input_tokens == 60
    assert snapshot.cache_creation.ephemeral_5m_input_tokens == 140
    assert snapshot.HasField("server_tool_use")
    assert not snapshot.HasField("list_cost")
    assert session.appends[-1].usage.input_tokens == 14


async def test_second_turn_folds_only_what_is_new(rig: Rig) -> None:
    session = rig.session()
    brain = await rig.brain()
    for word in ("one", "two"):
        rig.model.say(text(word))
        session.message(word)
        await rig.wake(session, brain)
    first_turn = session.opens[1].after_seq
    assert session.opens[0].after_seq == 0
    assert session.log[first_turn].user_message.content[0].text.text == "two"
    fresh = await rig.brain()
    rig.model.say(text("three"))
    session.message("three")
    await rig.wake(session, fresh)
    assert rig.model.requests[2]["messages"][:2] == [
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "one"}]},
    ]


async def test_refusal_ends_the_turn_and_leaves_the_context(rig: Rig) -> None:
    session = rig.session()
    details = {"type": "refusal", "category": "cyber", "explanation": "No."}
    rig.model.say(text("I will not"), stop_reason="refusal", stop_details=details)
    rig.model.say(text("With pleasure."))
    session.message("something bad")
    brain = await rig.brain()
    await rig.wake(session, brain)
    idle = session.log[-1].session_status_idle
    assert idle.stop_reason.HasField("refusal")
    assert (idle.stop_details.category, idle.stop_details.explanation) == ("cyber", "No.")
    session.message("something good")
    await rig.wake(session, brain)
    sent = rig.model.requests[1]["messages"]
    assert len(sent) == 1
    assert sent[0]["content"][0]["text"] == "something good"


async def test_reply_cut_off_at_the_output_limit_is_continued(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(text("Once upon"), stop_reason="max_tokens")
    rig.model.say(text(" a time."))
    session.message("Tell")
    await rig.wake(session)
    assert session.kinds.count("agent_message") == 2
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")
    assert [message["role"] for message in rig.model.requests[1]["messages"]] == [
        "user",
        "assistant",
        "user",
    ]


async def test_agent_that_wants_an_unknown_harness_is_told_so(rig: Rig) -> None:
    session = rig.session(metadata={"drover.harness": "dreamy"})
    session.message("Hi")
    await rig.wake(session)
    assert session.kinds == ["user_message", "session_error", *IDLE]
    assert "dreamy" in session.log[1].session_error.error.message
    assert rig.model.bodies == []


async def test_wake_without_need_gives_the_lease_back(rig: Rig) -> None:
    session = rig.session()
    assert await rig.wake(session) == 1
    assert session.log == []
    assert not session.held
