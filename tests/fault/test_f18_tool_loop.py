"""F18: a model that never stops calling tools is stopped at the limit, with a clear event."""

from __future__ import annotations

from itertools import pairwise

import pytest

from drover.event.v1.session_event_pb2 import RETRY_STATUS_TYPE_EXHAUSTED
from services.brain.domain.decision import Limits
from tests.doubles.scripted_model import text, tool
from tests.integration.brain import conftest
from tests.integration.brain.agents import custom_tool
from tests.integration.brain.conftest import Rig

rig = conftest.rig


def _loop(rig: Rig) -> None:
    rig.model.before_each = lambda _body: rig.model.say(tool("bash", {"command": "ls"}))


@pytest.mark.parametrize("limit", [1, 3, 20])
async def test_f18_a_turn_that_never_stops_calling_tools_ends_at_the_limit(
    rig: Rig, limit: int
) -> None:
    session = rig.session()
    _loop(rig)
    session.message("Loop")
    session.message("and this waits")
    await rig.wake(session, await rig.brain(limits=Limits(requests=limit)))
    assert len(rig.model.bodies) == limit
    assert session.kinds.count("agent_tool_use") == limit
    assert session.kinds.count("agent_tool_result") == limit
    assert len(set(rig.hands.ran)) == len(rig.hands.ran) == limit
    (error,) = session.of("session_error")
    assert error.session_error.error.HasField("tool_use_limit_reached_error")
    assert f"limit of {limit} model requests" in error.session_error.error.message
    assert error.session_error.error.retry_status.type == RETRY_STATUS_TYPE_EXHAUSTED
    assert session.kinds[-3:] == [
        "session_thread_status_idle",
        "session_usage",
        "session_status_idle",
    ]
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")
    # What waited was taken and left unanswered (EVENTS §7).
    assert session.inbox == []
    assert session.kinds.count("user_message") == 2


async def test_f18_the_limit_is_a_turns_own_and_the_next_message_begins_a_new_one(
    rig: Rig,
) -> None:
    session = rig.session()
    brain = await rig.brain(limits=Limits(requests=3))
    _loop(rig)
    session.message("Loop")
    await rig.wake(session, brain)
    rig.model.replies.clear()
    rig.model.before_each = None
    rig.model.say(tool("bash", {"command": "ls"}))
    rig.model.say(text("Done now."))
    session.message("Once more, then stop.")
    await rig.wake(session, brain)
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")
    sent = rig.model.requests[-1]["messages"]
    # Every call that the model has seen has its result, in the message behind it.
    for asked, answered in pairwise(sent):
        calls = {part["id"] for part in asked["content"] if part["type"] == "tool_use"}
        results = {
            part["tool_use_id"] for part in answered["content"] if part["type"] == "tool_result"
        }
        assert calls == results or not calls


async def test_f18_the_limit_holds_over_the_deaths_of_brains(rig: Rig) -> None:
    session = rig.session()
    _loop(rig)
    session.message("Loop")
    limits = Limits(requests=4)
    # Each brain is cut off after an append that told of a result.
    session.break_after = lambda append: any(
        event.HasField("agent_tool_result") for event in append.events
    )
    await rig.wake(session, await rig.brain(limits=limits))
    assert len(rig.model.bodies) == 4
    assert session.kinds.count("session_error") == 1


async def test_f18_a_loop_over_the_clients_own_tool_ends_at_the_limit_too(rig: Rig) -> None:
    session = rig.session(custom_tool("look_up"))
    rig.model.before_each = lambda _body: rig.model.say(tool("look_up", {}))
    brain = await rig.brain(limits=Limits(requests=3))
    session.message("Loop")
    await rig.wake(session, brain)
    for number in range(3):
        session.answer(session.of("agent_custom_tool_use")[number].id, "found")
        await rig.wake(session, brain)
    assert len(rig.model.bodies) == 3
    error = session.of("session_error")[-1].session_error.error
    assert error.HasField("tool_use_limit_reached_error")
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")
