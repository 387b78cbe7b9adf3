"""A brain that dies anywhere in a turn is replaced by one that finishes it (CASES F1, F4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from chassis.errors import DroverError
from services.brain.loop.sync_points import Point
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.agents import overloaded
from tests.integration.brain.conftest import Rig
from tests.integration.brain.test_turns import END, START


class DieAt:
    """Kills the brain when it comes by a point for the nth time."""

    def __init__(self, point: Point, nth: int = 1) -> None:
        self._point = point
        self._left = nth
        self.died = asyncio.Event()

    async def reach(self, point: Point) -> None:
        if point is self._point:
            self._left -= 1
            if not self._left:
                self.died.set()
                await asyncio.Event().wait()


def script(rig: Rig) -> None:
    """A turn of two parallel calls; what is asked again is answered alike."""
    rig.model.replies.clear()

    def answer(body: bytes) -> None:
        if b'"tool_result"' in body:
            rig.model.say(text("Done."))
        else:
            rig.model.say(
                text("Let me see."),
                tool("bash", {"command": "one"}, "toolu_1"),
                tool("bash", {"command": "two"}, "toolu_2"),
            )

    rig.model.before_each = answer


async def kill_at(
    rig: Rig,
    session: FakeSession,
    point: Point,
    nth: int,
    arrived: Callable[[], bool] | None = None,
) -> bool:
    """Whether the brain came by the point and was killed there.

    What is on its way then may arrive or not; `arrived` makes sure that it does.
    """
    points = DieAt(point, nth)
    brain = await rig.brain(points=points)
    woken = asyncio.ensure_future(rig.wake(session, brain))
    died = asyncio.ensure_future(points.died.wait())
    await asyncio.wait({woken, died}, return_when=asyncio.FIRST_COMPLETED)
    died.cancel()
    if not points.died.is_set():
        await woken
        return False
    if arrived is not None:
        await session.until(arrived)
    await brain.__aexit__(None, None, None)
    with pytest.raises(asyncio.CancelledError):
        await woken
    return True


def without_retries(kinds: list[str]) -> list[str]:
    """The log without model requests that were lost with their brain."""
    rest, at = [], 0
    while at < len(kinds):
        if kinds[at : at + 2] == [START, END]:
            at += 2
        else:
            rest.append(kinds[at])
            at += 1
    return rest


# What a plain turn does not come by.
ELSEWHERE = (
    Point.JUDGED,
    Point.CONTROL_TAKEN,
    Point.SUMMARISED,
    Point.INTERRUPT_SEEN,
    Point.BEFORE_RETRY,
    Point.BEFORE_GIVING_UP,
)
TURN_POINTS = [point for point in Point if point not in ELSEWHERE]
TWICE = (
    Point.BEFORE_REQUEST,
    Point.FIRST_MODEL_EVENT,
    Point.RESPONSE_COMPLETE,
    Point.TOOL_FINISHED,
)


@pytest.mark.parametrize(
    ("point", "nth"), [*((point, 1) for point in TURN_POINTS), *((point, 2) for point in TWICE)]
)
async def test_killed_brain_is_replaced_and_the_log_is_as_if_it_had_lived(
    rig: Rig, point: Point, nth: int
) -> None:
    script(rig)
    whole = rig.session()
    whole.message("Go")
    await rig.wake(whole)
    rig.hands.ran.clear()
    session = rig.session()
    session.message("Go")
    assert await kill_at(rig, session, point, nth)
    if session.held:
        session.revoke()
    await rig.wake(session)
    assert without_retries(session.kinds) == whole.kinds
    assert len(session.of(START)) - len(whole.of(START)) <= 1
    assert len(rig.hands.ran) == 2
    assert not session.held
    results = [event.agent_tool_result.tool_use_id for event in session.of("agent_tool_result")]
    assert sorted(results) == sorted(event.id for event in session.of("agent_tool_use"))


@pytest.mark.parametrize("point", [Point.INTERRUPT_SEEN, Point.BEFORE_IDLE])
async def test_brain_killed_in_an_interrupt_is_replaced(rig: Rig, point: Point) -> None:
    session = rig.session()
    rig.hands.hold("slow")
    rig.model.say(tool("bash", {"command": "slow"}))
    session.message("Go")
    points = DieAt(point)
    brain = await rig.brain(points=points)
    woken = asyncio.ensure_future(rig.wake(session, brain))
    await rig.hands.started()
    session.interrupt()
    await points.died.wait()
    await brain.__aexit__(None, None, None)
    with pytest.raises(asyncio.CancelledError):
        await woken
    session.revoke()
    await rig.wake(session)
    assert session.kinds.count("agent_tool_result") == 1
    assert session.kinds[-5:-3] == ["agent_tool_result", "user_interrupt"]
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_brain_killed_while_waiting_to_try_again_is_replaced(rig: Rig) -> None:
    session = rig.session()
    rig.model.fail(overloaded())
    session.message("Go")
    # The brain has told of the failure when it comes by; whoever is next tries again.
    assert await kill_at(rig, session, Point.BEFORE_RETRY, 1)
    session.revoke()
    rig.model.replies.clear()
    rig.model.say(text("Done."))
    await rig.wake(session)
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_requests_lost_again_and_again_end_the_turn(rig: Rig) -> None:
    session = rig.session()
    session.message("Go")
    for nth in range(1, 6):
        assert await kill_at(
            rig,
            session,
            Point.FIRST_MODEL_EVENT,
            1,
            lambda count=nth: len(session.of(START)) == count,  # type: ignore[misc]
        )
        session.revoke()
    await rig.wake(session)
    assert session.of("session_error")[0].session_error.error.HasField("unknown_error")
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")


async def test_brain_that_knows_an_older_log_takes_no_message_into_a_turn_under_way(
    rig: Rig,
) -> None:
    """It had the session's first turn, another one died in the second."""
    session = rig.session()
    knowing = await rig.brain()
    rig.model.say(text("One."))
    session.message("first")
    await rig.wake(session, knowing)
    points = DieAt(Point.BEFORE_REQUEST)
    async with asyncio.timeout(20):
        dying = asyncio.create_task((await rig.brain(points=points)).wake(session.session.id))
        session.message("second")
        await points.died.wait()
    session.message("third")
    session.revoke()
    with pytest.raises(DroverError):
        await dying
    session.held = False
    rig.model.say(text("Two."))
    rig.model.say(text("Three."))
    await rig.wake(session, knowing)
    told = [kind for kind in session.kinds if kind in {"user_message", "agent_message"}]
    assert told == ["user_message", "agent_message"] * 3


async def test_a_brain_whose_clock_is_wrong_counts_no_time_that_did_not_pass(rig: Rig) -> None:
    """The session's clock is years behind the brain's: a brain that takes over has heard of it."""
    session = rig.session(model="claude-opus-5-5")
    session.session.budget.max_list_cost.amount = "5"
    script(rig)
    session.message("Go")
    assert await kill_at(rig, session, Point.TOOLS_SENT, 1)
    session.revoke()
    await rig.wake(session)
    told = session.of("session_usage")[-1].session_usage.usage
    assert told.list_cost.amount == "0"
    ended = session.of("session_status_idle")[-1].session_status_idle
    assert ended.stop_reason.HasField("end_turn")
