"""A model that fails: tried again with patience, given up with an explanation (EVENTS §7)."""

from __future__ import annotations

import asyncio

import pytest

from drover.event.v1.session_event_pb2 import (
    RETRY_STATUS_TYPE_EXHAUSTED,
    RETRY_STATUS_TYPE_RETRYING,
)
from services.brain.model.port import ModelError, ModelErrorKind
from tests.doubles.scripted_model import text
from tests.integration.brain.agents import overloaded
from tests.integration.brain.conftest import Rig
from tests.integration.brain.test_turns import END, IDLE, RUNNING, START

FAILED = [
    END,
    "session_error",
    "session_status_rescheduled",
    "session_thread_status_rescheduled",
]


async def test_transient_failure_is_shown_and_tried_again(rig: Rig) -> None:
    session = rig.session()
    rig.model.fail(overloaded())
    rig.model.say(text("Back again."))
    session.message("Hi")
    await rig.wake(session)
    assert session.kinds == [
        "user_message",
        *RUNNING,
        START,
        *FAILED,
        *RUNNING,
        START,
        "agent_message",
        END,
        *IDLE,
    ]
    error = session.of("session_error")[0].session_error.error
    assert error.HasField("model_overloaded_error")
    assert error.retry_status.type == RETRY_STATUS_TYPE_RETRYING
    assert session.of(END)[0].span_model_request_end.is_error
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_an_inbox_that_is_more_than_one_take_is_flushed_all_the_same(rig: Rig) -> None:
    session = rig.session()
    session.take_at_most = 2
    for _ in range(3):
        rig.model.fail(overloaded())
    for number in range(7):
        session.message(f"{number}")
    await rig.wake(session)
    assert session.kinds.count("user_message") == 7
    assert session.kinds[-4:] == ["session_error", *IDLE]
    assert session.inbox == []
    assert not session.held


async def test_repeated_failures_end_the_turn_and_flush_the_inbox(rig: Rig) -> None:
    session = rig.session()
    for _ in range(3):
        rig.model.fail(overloaded())
    session.message("Hi")
    session.message("Are you there?")
    await rig.wake(session)
    assert session.kinds.count("session_status_rescheduled") == 2
    assert session.kinds[-6:] == [END, "user_message", "session_error", *IDLE]
    error = session.of("session_error")[-1].session_error.error
    assert error.retry_status.type == RETRY_STATUS_TYPE_EXHAUSTED
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")
    assert session.inbox == []
    assert not session.held
    # The next message starts a turn of its own, and sees what was left unanswered.
    rig.model.say(text("Here I am."))
    session.message("Hello?")
    await rig.wake(session)
    (sent,) = rig.model.requests[-1]["messages"]
    assert [part["text"] for part in sent["content"]] == ["Hi", "Are you there?", "Hello?"]


async def test_failures_are_counted_across_brains(rig: Rig) -> None:
    session = rig.session()
    rig.model.fail(overloaded())
    reply = rig.model.say(text("late"))
    reply.hold = 0
    session.message("Hi")
    brain = await rig.brain()
    woken = asyncio.create_task(rig.wake(session, brain))
    await reply.reached.wait()
    # The request is under way before the session service has what was written ahead of it.
    await session.until(lambda: session.kinds.count("span_model_request_start") == 2)
    await brain.__aexit__(None, None, None)
    with pytest.raises(asyncio.CancelledError):
        await woken
    session.revoke()
    rig.model.fail(overloaded())
    rig.model.fail(overloaded())
    await rig.wake(session)
    assert session.kinds.count("session_status_rescheduled") == 2
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")


@pytest.mark.parametrize(
    ("kind", "status", "field", "hint"),
    [
        (ModelErrorKind.AUTHENTICATION, 401, "model_request_failed_error", "ANTHROPIC_API_KEY"),
        (ModelErrorKind.REQUEST_FAILED, 400, "model_request_failed_error", "model id"),
        (ModelErrorKind.BILLING, 402, "billing_error", "credit"),
    ],
)
async def test_failure_that_would_repeat_is_given_up_at_once_with_advice(
    rig: Rig, kind: ModelErrorKind, status: int, field: str, hint: str
) -> None:
    session = rig.session()
    rig.model.fail(
        ModelError(
            kind, "your credit is low", status=status, retryable=False, advice="ANTHROPIC_API_KEY"
        )
    )
    session.message("Hi")
    await rig.wake(session)
    assert len(rig.model.bodies) == 1
    error = session.of("session_error")[0].session_error.error
    assert error.HasField(field)
    assert hint in error.message
    assert error.message == "your credit is low" or ". Check the " in error.message
    assert error.retry_status.type == RETRY_STATUS_TYPE_EXHAUSTED
    assert session.kinds[-3:] == IDLE
