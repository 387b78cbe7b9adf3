"""Whole turns under the minimal harness, and what becomes of a session whose harness is another."""

from __future__ import annotations

import pytest

from catalogue.models import load
from drover.event.v1.session_event_pb2 import PlainError, SessionError
from services.brain.domain.decision import GiveUp, Limits
from services.brain.harness.guard import GuardedHarness, HarnessFailedError
from services.brain.harness.minimal import MinimalHarness
from services.brain.harness.port import Setup
from services.brain.harness.registry import HARNESS_KEY
from services.brain.model.port import ModelError, ModelErrorKind
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.agents import overloaded
from tests.integration.brain.conftest import Rig
from tests.integration.brain.test_turns import IDLE

SAID = "what the user said"
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


class Failing(MinimalHarness):
    """Fails in one member, or gives nothing there."""

    name = "failing"
    fold = "failing-1"

    def __init__(self, member: str, *, raises: bool) -> None:
        super().__init__(SETUP)

        def fail(*_: object) -> None:
            if raises:
                raise KeyError(SAID)

        setattr(self, member, fail)


@pytest.mark.parametrize(
    ("member", "raises"),
    [
        *((member, True) for member in ("begin", "project", "decide", "request")),
        *((member, False) for member in ("begin", "decide", "request")),
    ],
)
async def test_a_session_whose_harness_fails_is_told_of_it_and_comes_to_rest_at_each_message(
    rig: Rig, member: str, raises: bool
) -> None:
    session = rig.session(metadata={HARNESS_KEY: "failing"})
    brain = await rig.brain(others=[GuardedHarness(Failing(member, raises=raises))])
    for _ in range(2):
        session.message("Hi")
        with pytest.raises(HarnessFailedError, match=f"'failing' failed in '{member}'"):
            await rig.wake(session, brain)
        session.revoke()
        await rig.wake(session, brain)
        error = session.of("session_error")[-1].session_error.error
        assert f"'failing' failed in '{member}'" in error.message
        assert SAID not in error.message
        assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")
        assert session.kinds[-3:] == IDLE
    assert len(session.of("session_error")) == 2
    assert not rig.model.bodies


async def test_a_turn_that_is_given_up_leaves_no_announced_request_open(rig: Rig) -> None:
    class Reluctant(MinimalHarness):
        def decide(self, state, waiting, mine):
            if state.request:
                return GiveUp(SessionError(message="No.", unknown_error=PlainError()))
            return super().decide(state, waiting, mine)

    session = rig.session()
    session.message("Hi")
    await rig.wake(session, await rig.brain(harness=Reluctant(SETUP)))
    (start,) = session.of("span_model_request_start")
    (end,) = session.of("span_model_request_end")
    assert end.span_model_request_end.model_request_start_id == start.id
    assert end.span_model_request_end.is_error
    assert session.kinds[-3:] == IDLE
