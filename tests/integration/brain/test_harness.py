"""Whole turns under the minimal harness, and what becomes of a session whose harness is another."""

from __future__ import annotations

from catalogue.models import load
from services.brain.domain.decision import Limits
from services.brain.harness.minimal import MinimalHarness
from services.brain.harness.port import Setup
from services.brain.model.port import ModelError, ModelErrorKind
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.agents import overloaded
from tests.integration.brain.conftest import Rig
from tests.integration.brain.test_turns import IDLE

SETUP = Setup(models=load(None), max_output_tokens=500, limits=Limits())


async def test_tools_run_and_failures_are_tried_again_under_the_minimal_harness(rig: Rig) -> None:
    session = rig.session(model="claude-opus-5")
    rig.model.say(text("Let me see."), tool("bash", {"command": "ls"}))
    rig.model.fail(overloaded())
    rig.model.say(text("Done."))
    session.message("List")
    await rig.wake(session, await rig.brain(harness=MinimalHarness(SETUP)))
    assert session.kinds[-3:] == IDLE
    assert len(rig.hands.ran) == 1
    first, *_, last = rig.model.requests
    assert first["max_tokens"] == 500
    assert "thinking" not in first
    assert b"cache_control" not in b"".join(rig.model.bodies)
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user"]


async def test_a_conversation_that_is_too_long_ends_the_turn_under_the_minimal_harness(
    rig: Rig,
) -> None:
    session = rig.session()
    too_long = ModelError(
        ModelErrorKind.REQUEST_FAILED, "too long", status=400, retryable=False, overflow=True
    )
    rig.model.fail(too_long)
    session.message("Hi")
    await rig.wake(session, await rig.brain(harness=MinimalHarness(SETUP)))
    error = session.of("session_error")[-1].session_error.error
    assert error.HasField("compaction_limit_reached_error")
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")
    assert len(rig.model.bodies) == 1


async def test_a_log_that_one_harness_began_is_gone_on_with_by_another(rig: Rig) -> None:
    session = rig.session()
    for harness, said in ((MinimalHarness(SETUP), "one"), (None, "two")):
        rig.model.say(text(said))
        session.message(said)
        await rig.wake(session, await rig.brain(harness=harness))
    one, two = rig.model.requests
    assert two["messages"][0]["content"][0]["text"] == "one"
    assert [message["role"] for message in two["messages"]] == ["user", "assistant", "user"]
    assert len(one["messages"]) == 1
