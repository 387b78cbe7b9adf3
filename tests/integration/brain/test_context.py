"""A session outlives its model's window: summarised, killed, interrupted, looked back at."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from services.brain.domain.history import MAX_OUTPUT, PREFACE
from services.brain.harness.clearing import ClearingPolicy
from services.brain.harness.compaction import FALLBACK, HEADING, PROMPT, CompactionPolicy
from services.brain.harness.standard import StandardHarness
from services.brain.loop.sync_points import Point
from services.brain.model.port import ModelError, ModelErrorKind
from tests.doubles.hands_service import result
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import Reply, response, text, thinking, tool
from tests.integration.brain.agents import overloaded
from tests.integration.brain.conftest import TOOLSET, Rig
from tests.integration.brain.test_recovery import kill_at
from tests.integration.brain.test_turns import END, IDLE, START

COMPACTED = "agent_thread_context_compacted"
FULL = {"input_tokens": 9_000}


def small(**options: Any) -> StandardHarness:
    return StandardHarness(
        windows=lambda _: 10_000,
        compaction=CompactionPolicy(begin=0.8, tail=0.1, reply=500),
        **options,
    )


def too_long() -> ModelError:
    return ModelError(
        ModelErrorKind.REQUEST_FAILED,
        "the model's API answered 400 (invalid_request_error): prompt is too long",
        status=400,
        retryable=False,
        overflow=True,
    )


async def filled(rig: Rig) -> FakeSession:
    """A session whose next request has to summarise."""
    session = rig.session()
    brain = await rig.brain(harness=small())
    rig.model.say(thinking("hm"), tool("bash", {"command": "ls"}))
    rig.model.say(text("Nothing there."), usage=FULL)
    session.message("Look around. " * 500)
    await rig.wake(session, brain)
    session.message("And now?")
    return session


def asks(body: dict[str, Any]) -> bool:
    """Whether a request is for a summary."""
    return bool(body["messages"][-1]["content"][-1].get("text") == PROMPT)


def said(session: FakeSession) -> list[str]:
    return [event.agent_message.content[0].text.text for event in session.of("agent_message")]


async def test_full_window_is_summarised_within_the_turn_and_the_turn_goes_on(rig: Rig) -> None:
    session = await filled(rig)
    before = [event.SerializeToString() for event in session.log]
    rig.model.say(text("They looked."), usage={"input_tokens": 9_000, "output_tokens": 70})
    rig.model.say(text("Now this."))
    await rig.wake(session, await rig.brain(harness=small()))
    assert session.kinds[len(before) :] == [
        "user_message",
        "session_status_running",
        "session_thread_status_running",
        START,
        COMPACTED,
        END,
        START,
        "agent_message",
        END,
        *IDLE,
    ]
    assert [event.SerializeToString() for event in session.log[: len(before)]] == before
    (compacted,) = session.of(COMPACTED)
    assert compacted.agent_thread_context_compacted.summary == "They looked."
    order, then = rig.model.requests[-2:]
    assert asks(order)
    assert then["messages"][0]["content"][0]["text"] == f"{HEADING}They looked."
    assert then["messages"][-1]["content"][-1]["text"] == "And now?"
    assert [block["name"] for block in then["tools"]][-1] == "session_history"
    (*_, published) = session.of("session_usage")
    assert published.session_usage.usage.input_tokens == 10 + 9_000 + 9_000 + 10


async def test_nobody_watches_the_summary_being_written(rig: Rig) -> None:
    session = await filled(rig)
    session.previews.clear()
    rig.model.say(text("They looked.", pieces=5), tool("bash", {"command": "rm -r ."}))
    rig.model.say(text("Now this."))
    await rig.wake(session, await rig.brain(harness=small()))
    shown = {preview.event_delta.event_id for preview in session.previews} - {""}
    assert shown == {session.of("agent_message")[-1].id}
    assert len(rig.hands.ran) == 1


POINTS = (
    (Point.INPUT_TAKEN, 1),
    (Point.BEFORE_REQUEST, 1),
    (Point.FIRST_MODEL_EVENT, 1),
    (Point.SUMMARISED, 1),
    (Point.RESPONSE_COMPLETE, 1),
    (Point.BEFORE_REQUEST, 2),
    (Point.RESPONSE_COMPLETE, 2),
)


@pytest.mark.parametrize(("point", "nth"), POINTS)
async def test_brain_killed_around_a_summary_is_replaced_by_one_that_goes_on(
    rig: Rig, point: Point, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await filled(rig)
    brain = rig.brain

    async def with_a_small_window(**options: Any) -> Any:
        return await brain(harness=small(), **options)

    monkeypatch.setattr(rig, "brain", with_a_small_window)

    def answer(body: bytes) -> None:
        rig.model.say(text("They looked." if asks(json.loads(body)) else "Now this."))

    rig.model.before_each = answer
    assert await kill_at(rig, session, point, nth)
    if session.held:
        session.revoke()
    await rig.wake(session)
    assert session.kinds.count(COMPACTED) == 1
    assert session.kinds[-3:] == IDLE
    assert said(session) == ["Nothing there.", "Now this."]
    assert rig.model.requests[-1]["messages"][0]["content"][0]["text"] == f"{HEADING}They looked."


async def test_interrupt_stops_a_summary_and_the_next_turn_makes_it(rig: Rig) -> None:
    session = await filled(rig)
    reply = rig.model.add(Reply(response(text("They looked.", pieces=4)), hold=3))
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session, await rig.brain(harness=small())))
        await reply.reached.wait()
        session.interrupt()
        await woken
    assert COMPACTED not in session.kinds
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")
    rig.model.say(text("They looked."))
    rig.model.say(text("Now this."))
    session.message("Once more")
    await rig.wake(session, await rig.brain(harness=small()))
    assert session.kinds.count(COMPACTED) == 1
    assert said(session)[-1] == "Now this."


async def test_summary_that_fails_is_asked_for_again(rig: Rig) -> None:
    session = await filled(rig)
    rig.model.fail(overloaded())
    rig.model.say(text("They looked."))
    rig.model.say(text("Now this."))
    await rig.wake(session, await rig.brain(harness=small()))
    errors = [e.session_error.error.WhichOneof("error") for e in session.of("session_error")]
    assert errors == ["model_overloaded_error"]
    assert said(session)[-1] == "Now this."


async def test_conversation_goes_on_even_if_the_model_will_not_summarise(rig: Rig) -> None:
    session = await filled(rig)
    rig.model.say(tool("bash", {"command": "ls"}))
    rig.model.say(thinking("hm"))
    rig.model.say(text("Now this."))
    await rig.wake(session, await rig.brain(harness=small()))
    (compacted,) = session.of(COMPACTED)
    assert not compacted.agent_thread_context_compacted.summary
    assert FALLBACK in rig.model.requests[-1]["messages"][0]["content"][0]["text"]
    assert rig.model.requests[-2]["tool_choice"] == {"type": "none"}
    assert said(session)[-1] == "Now this."


async def test_prompt_that_the_api_finds_too_long_is_summarised_instead_of_failing(
    rig: Rig,
) -> None:
    session = rig.session()
    rig.hands.behaviours["ls"] = lambda _request: _listing()
    rig.model.say(tool("bash", {"command": "ls"}))
    rig.model.say(text("Nothing there."))
    session.message("Look around")
    await rig.wake(session)
    rig.model.fail(too_long())
    rig.model.say(text("They looked."))
    rig.model.say(text("Now this."))
    session.message("And now?")
    await rig.wake(session)
    assert "session_error" not in session.kinds
    assert session.kinds.count(COMPACTED) == 1
    assert b"x" * 100 not in rig.model.bodies[-2]
    assert said(session)[-1] == "Now this."


async def _listing() -> Any:
    return result("x" * 4_000)


async def test_window_that_stays_too_small_ends_the_turn_and_not_the_session(rig: Rig) -> None:
    session = await filled(rig)
    for _ in range(4):
        rig.model.fail(too_long())
    await rig.wake(session, await rig.brain(harness=small()))
    (error,) = session.of("session_error")
    assert error.session_error.error.HasField("compaction_limit_reached_error")
    idle = session.log[-1].session_status_idle
    assert idle.stop_reason.HasField("retries_exhausted")
    rig.model.say(text("They looked."))
    rig.model.say(text("Now this."))
    session.message("Better now?")
    await rig.wake(session, await rig.brain(harness=small()))
    assert said(session)[-1] == "Now this."


async def test_reply_that_filled_the_window_goes_on_behind_a_summary(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(text("Once upon"), stop_reason="model_context_window_exceeded")
    rig.model.say(text("A tale was begun."))
    rig.model.say(text("a time."))
    session.message("Tell me a tale")
    await rig.wake(session)
    assert said(session) == ["Once upon", "a time."]
    assert "session_error" not in session.kinds


async def looked_back(rig: Rig, *queries: dict[str, Any]) -> list[tuple[str, bool]]:
    """What the model is answered to its queries, in a session with some past."""
    session = rig.session(TOOLSET, metadata={"drover.session_history": "on"})
    brain = await rig.brain()
    rig.hands.behaviours["ls"] = lambda _request: _listing()
    rig.hands.behaviours["big"] = lambda _request: _big()
    rig.model.say(thinking("secretly"), text("Hello."), tool("bash", {"command": "ls"}, "toolu_a"))
    rig.model.say(tool("bash", {"command": "big"}, "toolu_b"))
    rig.model.say(text("Done: the Needle was found."))
    session.message("first question")
    await rig.wake(session, brain)
    calls = [
        tool("session_history", json.dumps(query).replace("$RESULT", _id(session)), f"toolu_{n}")
        for n, query in enumerate(queries)
    ]
    rig.model.say(*calls)
    session.message("look back")
    await rig.wake(session, brain)
    answers = session.of("agent_tool_result")[2:]
    uses = session.of("agent_tool_use")[2:]
    by_call = {event.agent_tool_result.tool_use_id: event.agent_tool_result for event in answers}
    assert len(by_call) == len(queries)
    assert len(rig.hands.ran) == 2
    found = [by_call[use.id] for use in uses]
    return [(result_.content[0].text.text, result_.is_error) for result_ in found]


def _id(session: FakeSession) -> str:
    return session.of("agent_tool_result")[1].id


async def _big() -> Any:
    return result("".join(f"line {number} ü\n" for number in range(5_000)))


def lines(answer: str) -> list[dict[str, Any]]:
    preface, *rest = answer.splitlines()
    assert preface == PREFACE
    return [json.loads(line) for line in rest if line.startswith('{"seq"')]


async def test_agent_reads_its_log_by_position_without_thinking_or_spans(rig: Rig) -> None:
    ((told, failed),) = await looked_back(rig, {})
    assert not failed
    assert "secretly" not in told
    found = lines(told)
    assert [line["type"] for line in found] == [
        "user.message",
        "agent.message",
        "agent.tool_use",
        "agent.tool_result",
        "agent.tool_use",
        "agent.tool_result",
        "agent.message",
        "user.message",
        "agent.tool_use",
    ]
    assert found[2]["tool"] == "bash"
    assert found[3]["characters"] == "0 to 2000 of 4000"
    assert "end of the log" in told


async def test_agent_reads_on_where_it_stopped(rig: Rig) -> None:
    first, second = await looked_back(rig, {"count": 2}, {"from_seq": 5, "count": 2})
    assert len(lines(first[0])) == 2
    hint = first[0].splitlines()[-1]
    assert hint.startswith("There may be more: ")
    following = json.loads(hint.removeprefix("There may be more: "))["from_seq"]
    assert following > lines(first[0])[-1]["seq"]
    assert all(line["seq"] >= 5 for line in lines(second[0]))


async def test_agent_finds_text_whatever_its_case(rig: Rig) -> None:
    found, nothing = await looked_back(rig, {"text": "needle WAS"}, {"text": "nowhere\x00else"})
    assert lines(found[0])[0]["type"] == "agent.message"
    assert "Nothing" not in found[0]
    assert not lines(nothing[0]) or "nowhere" in nothing[0]


async def test_agent_reads_a_long_result_whole_piece_by_piece(rig: Rig) -> None:
    (first, around) = await looked_back(
        rig,
        {"event_id": "$RESULT", "offset": 30_000},
        {"event_id": "$RESULT", "before": 1, "after": 2},
    )
    (line,) = lines(first[0])
    whole = "".join(f"line {number} ü\n" for number in range(5_000))
    assert whole[30_000:].startswith(line["text"])
    assert len(line["text"]) > MAX_OUTPUT * 0.8
    further = json.loads(first[0].splitlines()[-1].removeprefix("More of it: "))
    assert further["offset"] == 30_000 + len(line["text"])
    assert len(first[0].encode()) < MAX_OUTPUT * 1.3
    assert [it["type"] for it in lines(around[0])] == [
        "agent.tool_use",
        "agent.tool_result",
        "agent.message",
        "user.message",
    ]


async def test_odd_queries_are_answered_with_what_is_wrong_with_them(rig: Rig) -> None:
    answers = await looked_back(
        rig,
        {"event_id": "sevt_of_another_session"},
        {"from_seq": "three"},
        {"count": 0},
        {"session_id": "sesn_2"},
        {"event_id": "sevt_1", "text": "both"},
        {"count": 10**6},
    )
    assert [failed for _, failed in answers] == [True] * 5 + [False]
    assert "no event" in answers[0][0]
    assert "session_id" in answers[3][0]


async def test_tool_that_was_not_offered_is_refused(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(tool("session_history", {}))
    session.message("look back")
    await rig.wake(session)
    (refused,) = session.of("agent_tool_result")
    assert (
        "There is no tool named session_history" in refused.agent_tool_result.content[0].text.text
    )


async def test_cleared_result_is_found_again_under_the_id_in_its_place(rig: Rig) -> None:
    session = rig.session()
    clearing = ClearingPolicy(begin=0.1, least=0.05, keep=0)
    brain = await rig.brain(harness=small(clearing=clearing))
    rig.hands.behaviours["ls"] = lambda _request: _listing()
    rig.model.say(tool("bash", {"command": "ls"}))
    rig.model.say(text("Done."), usage={"input_tokens": 4_000})
    session.message("Look around")
    await rig.wake(session, brain)

    def answer(body: bytes) -> None:
        (note,) = json.loads(body)["messages"][2]["content"]
        shown = note["content"][0]["text"]
        query = shown[shown.index("{") : shown.index("}") + 1]
        if len(rig.model.bodies) == 3:
            rig.model.say(tool("session_history", query, "toolu_9"))

    rig.model.before_each = answer
    session.message("What was there?")
    await rig.wake(session, brain)
    (line,) = lines(session.of("agent_tool_result")[-1].agent_tool_result.content[0].text.text)
    assert line["text"] == "x" * 4_000
