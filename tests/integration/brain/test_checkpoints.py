"""A long session is taken up from what an earlier brain has folded, and short ones as ever."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from drover.event.v1.agent_event_pb2 import AgentMessage
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import EndTurn, StopReason
from drover.event.v1.span_event_pb2 import ModelUsage, SpanModelRequestEnd
from drover.event.v1.usage_pb2 import UsageSnapshot
from drover.event.v1.user_event_pb2 import UserMessage
from drover.session.v1.checkpoint_pb2 import CheckpointFormat
from drover.session.v1.lease_pb2 import AppendEvents
from services.brain.domain import events
from services.brain.harness.registry import HARNESS_KEY
from services.brain.loop.checkpoints import LEAST_EVENTS, NOTHING, Mark
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import text
from tests.integration.brain.conftest import Rig
from tests.unit.brain.logs import Numbered

EVENTS_A_TURN = 9


def grow(session: FakeSession, turns: int = LEAST_EVENTS // EVENTS_A_TURN) -> None:
    """Fills the log with turns, as another brain would have left it."""
    factory = events.EventFactory(Numbered(), "sthr_1", "Worker")
    for number in range(turns):
        asked = UserMessage(content=[events.text(f"question {number}")])
        start = factory.request_start()
        answer = AgentMessage(content=[events.text(f"answer {number}")])
        end = SpanModelRequestEnd(
            model_request_start_id=start.id,
            model_usage=ModelUsage(input_tokens=1),
            stop_reason="end_turn",
        )
        for event in (
            Event(id=factory.new_id(), user_message=asked),
            *factory.running(),
            start,
            Event(id=factory.new_id(), agent_message=answer),
            Event(id=factory.new_id(), span_model_request_end=end),
            *factory.idle(StopReason(end_turn=EndTurn()), None, UsageSnapshot(), None),
        ):
            session._append(event)


async def turn(rig: Rig, session: FakeSession, *, brain=None) -> bytes:
    """One more turn, by a brain that has never seen the session unless one is named."""
    rig.model.say(text("Yes."))
    session.message("And now?")
    await rig.wake(session, brain)
    return rig.model.bodies[-1]


async def saved(session: FakeSession, count: int = 1) -> None:
    await session.until(lambda: len(session.saved) >= count)


async def test_second_brain_is_sent_what_came_since_the_checkpoint_alone(rig: Rig) -> None:
    session = rig.session()
    grow(session)
    await turn(rig, session)
    await saved(session)
    head = len(session.log)
    assert session.checkpoint.seq == head
    await turn(rig, session)
    await turn(rig, session)
    assert session.sent == [LEAST_EVENTS // EVENTS_A_TURN * EVENTS_A_TURN, 0, EVENTS_A_TURN]


async def test_model_is_sent_the_same_from_a_checkpoint_as_from_the_whole_log(rig: Rig) -> None:
    one, other = rig.session(), rig.session()
    for session in (one, other):
        grow(session)
        await turn(rig, session)
        await saved(session)
    other.checkpoint = None
    assert await turn(rig, one) == await turn(rig, other)
    assert one.sent[-1] == 0
    assert other.sent[-1] == len(other.log) - EVENTS_A_TURN


async def test_short_session_leaves_none(rig: Rig) -> None:
    session = rig.session()
    for _ in range(3):
        await turn(rig, session)
    session.checkpoint = None
    assert not session.saved
    assert session.sent == [0, 9, 18]


async def test_brain_that_knows_the_session_leaves_the_next_one_when_it_is_due(rig: Rig) -> None:
    session, brain = rig.session(), await rig.brain()
    grow(session)
    await turn(rig, session, brain=brain)
    await saved(session)
    first = session.checkpoint.seq
    while len(session.log) < first + LEAST_EVENTS:
        assert len(session.saved) == 1
        await turn(rig, session, brain=brain)
    await saved(session, 2)
    assert session.checkpoint.seq == len(session.log)


async def test_release_does_not_wait_for_the_checkpoint(rig: Rig) -> None:
    session = rig.session()
    grow(session)
    rig.checkpoints.gate.clear()
    await turn(rig, session)
    assert not session.held
    assert not session.saved
    await turn(rig, session)
    rig.checkpoints.gate.set()
    await saved(session)


@pytest.mark.parametrize("damage", ["cut off", "one bit", "another session's", "another position"])
async def test_checkpoint_that_is_damaged_is_dropped_and_replaced(rig: Rig, damage: str) -> None:
    session, other = rig.session(), rig.session()
    for one in (session, other):
        grow(one)
        await turn(rig, one)
        await saved(one)
    kept = session.checkpoint
    match damage:
        case "cut off":
            kept.data = kept.data[:-1]
        case "one bit":
            kept.data = kept.data[:-1] + bytes([kept.data[-1] ^ 1])
        case "another session's":
            kept.CopyFrom(other.checkpoint)
        case _:
            kept.seq -= 1
    await turn(rig, session)
    assert [bool(opening.checkpoint_formats) for opening in session.opens] == [True, True, False]
    assert session.sent[-1] == len(session.log) - EVENTS_A_TURN
    assert session.opens[-1].generation == session.generation
    await saved(session, 2)
    await turn(rig, session)
    assert session.sent[-1] == 0


async def test_checkpoint_of_a_harness_that_the_agent_has_left_is_not_taken(rig: Rig) -> None:
    session = rig.session()
    grow(session)
    await turn(rig, session)
    await saved(session)
    session.session.agent.metadata[HARNESS_KEY] = "another"
    session.message("And now?")
    await rig.wake(session)
    assert session.sent[-1] == LEAST_EVENTS // EVENTS_A_TURN * EVENTS_A_TURN + EVENTS_A_TURN
    assert session.log[-1].HasField("session_status_idle")


async def test_version_that_this_brain_does_not_fold_is_not_asked_for(rig: Rig) -> None:
    session = rig.session()
    grow(session)
    await turn(rig, session)
    await saved(session)
    session.checkpoint.format.CopyFrom(CheckpointFormat(harness="standard", version="older"))
    await turn(rig, session)
    assert len(session.opens) == 2
    assert session.sent[-1] == len(session.log) - EVENTS_A_TURN
    await saved(session, 2)
    assert session.checkpoint.format.version != "older"


async def test_work_that_failed_behind_a_checkpoint_begins_at_the_beginning(rig: Rig) -> None:
    session, brain = rig.session(), await rig.brain()
    grow(session)
    await turn(rig, session)
    await saved(session)

    def refuse(_append: AppendEvents) -> None:
        session.before_append = None
        raise DroverError(Reason.INVALID_ARGUMENT, "events: no such call")

    session.before_append = refuse
    rig.model.say(text("Yes."))
    session.message("And now?")
    with pytest.raises(DroverError):
        await rig.wake(session, brain)
    session.revoke()
    await rig.wake(session, brain)
    assert session.sent[-2:] == [0, len(session.log) - EVENTS_A_TURN]
    assert not session.opens[-1].checkpoint_formats
    await saved(session, 2)


async def test_stream_that_breaks_behind_a_checkpoint_goes_on_from_there(rig: Rig) -> None:
    session = rig.session()
    grow(session)
    await turn(rig, session)
    await saved(session)
    session.break_after = lambda append: append.events
    await turn(rig, session)
    first, again = session.opens[-2:]
    assert first.checkpoint_formats
    assert again.generation
    assert again.after_seq >= session.checkpoint.seq
    assert session.sent[-1] < EVENTS_A_TURN


async def test_brain_that_stops_lets_go_of_checkpoints_under_way(rig: Rig) -> None:
    session = rig.session()
    grow(session)
    rig.checkpoints.gate.clear()
    await turn(rig, session)
    async with asyncio.timeout(30):
        await rig.stack.aclose()
    assert not session.saved


def test_checkpoints_are_due_after_so_many_events_or_bytes_and_more_of_them_in_a_long_log() -> None:
    assert not NOTHING.is_far_behind(Mark(199, 1000))
    assert NOTHING.is_far_behind(Mark(200, 1000))
    assert NOTHING.is_far_behind(Mark(5, 1 << 20))
    late = Mark(16_000, 32 << 20)
    assert not late.is_far_behind(Mark(17_999, 34 << 20))
    assert late.is_far_behind(Mark(18_000, 34 << 20))
    assert late.is_far_behind(Mark(16_001, 36 << 20))
    assert not late.is_far_behind(Mark(16_001, 0))
